// SPDX-License-Identifier: Apache-2.0
#include "external_data.hpp"

#include <cohort/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "status.hpp"

namespace cohort::runtime::onnx::detail {
namespace {

using runtime::detail::descriptor;
using runtime::detail::last_error;
using runtime::detail::regular_file;

// The messages of an ONNX model that can contain a tensor.
enum class message : std::uint8_t {
  model,
  training,
  function,
  graph,
  node,
  attribute,
  sparse_tensor,
  tensor,
  entry,  // Of external data: key and value.
};

struct edge {
  message from;
  std::uint64_t field;
  message to;
};
constexpr std::array edges{
    edge{message::model, 7, message::graph},
    edge{message::model, 20, message::training},
    edge{message::model, 25, message::function},
    edge{message::training, 1, message::graph},
    edge{message::training, 2, message::graph},
    edge{message::function, 7, message::node},
    edge{message::function, 11, message::attribute},
    edge{message::graph, 1, message::node},
    edge{message::graph, 5, message::tensor},
    edge{message::graph, 15, message::sparse_tensor},
    edge{message::node, 5, message::attribute},
    edge{message::attribute, 5, message::tensor},
    edge{message::attribute, 6, message::graph},
    edge{message::attribute, 10, message::tensor},
    edge{message::attribute, 11, message::graph},
    edge{message::attribute, 22, message::sparse_tensor},
    edge{message::attribute, 23, message::sparse_tensor},
    edge{message::sparse_tensor, 1, message::tensor},
    edge{message::sparse_tensor, 2, message::tensor},
    edge{message::tensor, 13, message::entry},
};

[[noreturn]] void refuse(std::string_view why) {
  throw config_error{fmt::format("is cut off, or is not an ONNX model: {}", why)};
}

/// The bytes of a model: in memory, or read from a file 64 KiB at a time.
class source {
 public:
  explicit source(std::span<const std::byte> all) : size_{all.size()}, part_{all} {}
  explicit source(regular_file& file) : size_{file.size()}, file_{&file} {}

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// At most `longest` bytes within the model, valid until the next call.
  std::span<const std::byte> at(std::uint64_t offset, std::size_t bytes) {
    if (offset < first_ || offset - first_ + bytes > part_.size()) fetch(offset);
    if (offset - first_ + bytes > part_.size()) refuse("a field of it ends behind its end");
    return part_.subspan(offset - first_, bytes);
  }
  static constexpr std::size_t longest = std::size_t{1} << 16U;

 private:
  void fetch(std::uint64_t offset) {
    if (file_ == nullptr) return;
    buffer_.resize(longest);
    std::size_t have = 0;  // A network file may arrive in smaller parts.
    while (const std::size_t n =
               file_->read_at(offset + have, buffer_.data() + have, longest - have)) {
      have += n;
    }
    part_ = std::span{buffer_}.first(have);
    first_ = offset;
    if (!file_->problem().empty()) throw config_error{file_->problem()};
  }

  std::uint64_t size_;
  regular_file* file_ = nullptr;
  std::vector<std::byte> buffer_;
  std::uint64_t first_ = 0;
  std::span<const std::byte> part_;  // The bytes from `first_` on.
};

/// Reads the fields of one message, between two offsets.
class reader {
 public:
  reader(source& from, std::uint64_t at, std::uint64_t end) : from_{from}, at_{at}, end_{end} {}

  [[nodiscard]] bool has_more() const noexcept { return at_ < end_; }
  std::uint64_t number() {
    std::uint64_t n = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto b = std::to_integer<std::uint64_t>(from_.at(skip(1), 1).front());
      n |= (b & 0x7FU) << shift;
      if (b < 0x80U) return n;
    }
    refuse("a number of it has more than 64 bits");
  }
  /// @returns Their offset.
  std::uint64_t skip(std::uint64_t bytes) {
    if (bytes > end_ - at_) refuse("a field of it ends behind its end");
    return std::exchange(at_, at_ + bytes);
  }

 private:
  source& from_;
  std::uint64_t at_;
  std::uint64_t end_;
};

std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class walk {
 public:
  explicit walk(source& of) : of_{of} {}
  std::vector<std::string> found;

  void into(message kind, std::uint64_t at, std::uint64_t end, int depth = 0) {
    if (depth > 100) refuse("its messages lie more than 100 deep in each other");
    reader in{of_, at, end};
    std::string key;
    std::string value;
    while (in.has_more()) {
      const std::uint64_t tag = in.number();
      const std::uint64_t field = tag >> 3U;
      if (field == 0) refuse("it has a field 0");
      switch (tag & 7U) {
        case 0:
          in.number();
          break;
        case 1:
          in.skip(8);
          break;
        case 2: {
          const std::uint64_t bytes = in.number();
          const std::uint64_t from = in.skip(bytes);
          if (kind == message::entry && field == 1) key = text_at(from, bytes);
          if (kind == message::entry && field == 2) value = text_at(from, bytes);
          const auto next = std::ranges::find_if(
              edges, [&](const edge& e) { return e.from == kind && e.field == field; });
          if (next != edges.end()) into(next->to, from, from + bytes, depth + 1);
          break;
        }
        case 5:
          in.skip(4);
          break;
        default:
          refuse(fmt::format("it has a field of type {}", tag & 7U));
      }
    }
    if (kind == message::entry && key == "location" && seen_.insert(value).second) {
      found.push_back(std::move(value));
    }
  }

 private:
  std::string text_at(std::uint64_t from, std::uint64_t bytes) {
    if (bytes > source::longest) {
      refuse(fmt::format("the place of external data has {} bytes: expected at most {}", bytes,
                         source::longest));
    }
    return std::string{text(of_.at(from, bytes))};
  }

  source& of_;
  std::unordered_set<std::string> seen_;
};

std::vector<std::string> locations_in(source of) {
  if (of.size() == 0) refuse("it is empty");
  // ONNX Runtime would treat it as its own format; external files of that are not found here.
  if (of.size() >= 8 && text(of.at(4, 4)) == "ORTM") {
    throw config_error{"is in ONNX Runtime's own format: expected an ONNX model"};
  }
  walk w{of};
  w.into(message::model, 0, of.size());
  return std::move(w.found);
}

/// Best effort: files that cannot be removed stay in TMPDIR.
void discard(const std::filesystem::path& folder) noexcept {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

/// @returns Whether all bytes were written; if not, errno is set.
bool write_all(int to, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(to, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

/// @param what Start of error messages. @param to In the folder of the copies.
void copy_file(regular_file& from, const std::string& what, const std::filesystem::path& to) {
  const auto refuse_it = [&](std::string_view why) {
    throw config_error{fmt::format("{}{}", what, why)};
  };
  const std::uintmax_t size = from.size();
  const std::uintmax_t room = std::filesystem::space(to.parent_path()).available;
  if (size > room) {
    refuse_it(fmt::format("has {} bytes: its private copy has room for {} in TMPDIR", size, room));
  }
  const descriptor copy{::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
  if (!copy.is_open()) refuse_it("cannot be copied to TMPDIR: " + last_error());
  std::vector<std::byte> part(std::size_t{1} << 20U);
  std::uintmax_t copied = 0;
  while (const std::size_t n = from.read_at(copied, part.data(), part.size())) {
    copied += n;
    if (copied > size) break;
    if (!write_all(copy.get(), std::span{part}.first(n))) {
      refuse_it("cannot be copied to TMPDIR: " + last_error());
    }
  }
  if (!from.problem().empty()) refuse_it(from.problem());
  if (copied != size || from.has_changed()) {
    refuse_it("changed while it was read: load the model again");
  }
}

/// @throws config_error If it cannot be created.
std::filesystem::path make_private_folder() {
  std::error_code failed;
  const auto in = std::filesystem::temp_directory_path(failed);
  if (failed) throw config_error{"TMPDIR is no folder: " + failed.message()};
  std::string name = (in / "cohort-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw config_error{"no folder can be made in TMPDIR: " + last_error()};
  }
  return name;
}

}  // namespace

std::vector<std::string> external_locations(std::span<const std::byte> model) {
  return locations_in(source{model});
}
std::vector<std::string> external_locations(regular_file& model) {
  return locations_in(source{model});
}

void check_location(const std::string& location) {
  const std::filesystem::path path{location};
  const bool leaves = std::ranges::find(path, std::filesystem::path{".."}) != path.end();
  if (location.empty() || path.is_absolute() || leaves ||
      location.find('\0') != std::string::npos) {
    throw config_error{
        fmt::format("external data '{}' is refused: expected a file below the model's folder",
                    one_line(location))};
  }
}

model_place::model_place(const std::filesystem::path& below, const std::filesystem::path& at)
    : file{[&] {
        const std::filesystem::path in = at.has_parent_path() ? at.parent_path() : ".";
        const auto opened = [](descriptor d) {
          if (!d.is_open()) throw config_error{"its folder cannot be read: " + last_error()};
          return d;
        };
        if (below.empty()) {
          regular_file named{at.string()};
          if (!named.problem().empty()) return named;
          folder = opened(runtime::detail::open_folder(in.string()));
          names_in = opened(runtime::detail::open_folder(in.string()));
          return named;
        }
        const descriptor top = opened(runtime::detail::open_folder(below.string()));
        folder = opened(runtime::detail::open_below(top, in.string()));
        names_in = opened(runtime::detail::open_below(top, at.begin()->string()));
        return regular_file{top, at.string(), names_in};
      }()} {}

private_copy::private_copy(model_place& in, const std::filesystem::path& name,
                           std::span<const std::string> locations) {
  for (const std::string& l : locations) check_location(l);
  folder_ = make_private_folder();
  try {
    for (const std::string& l : locations) {
      regular_file from{in.folder, l, in.names_in};
      const std::string what = fmt::format("external data '{}' ", one_line(l));
      if (!from.problem().empty()) throw config_error{what + from.problem()};
      const std::filesystem::path to = folder_ / l;
      std::filesystem::create_directories(to.parent_path());
      copy_file(from, what, to);
    }
    model_ = folder_ / name;  // Last: no external location may overwrite it.
    copy_file(in.file, "", model_);
  } catch (const std::filesystem::filesystem_error& e) {
    discard(folder_);
    throw config_error{"external data cannot be copied to TMPDIR: " + e.code().message()};
  } catch (...) {
    discard(folder_);
    throw;
  }
}

private_copy::~private_copy() { discard(folder_); }

}  // namespace cohort::runtime::onnx::detail
