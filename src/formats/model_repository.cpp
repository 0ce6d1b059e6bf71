// SPDX-License-Identifier: Apache-2.0
#include "model_repository.hpp"

#include "model_check.hpp"
#include "text.hpp"

#include <runtime/regular_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

namespace cohort::formats {
namespace {

namespace fs = std::filesystem;
using runtime::detail::descriptor;
using runtime::detail::open_below;

constexpr std::size_t most_models = 1000;
constexpr std::size_t most_entries = 10'000;  // Limit on the entries of a folder.

[[noreturn]] void cannot_read(const std::string& path, const std::error_code& why) {
  throw input_error{fmt::format("{}: cannot be read: {}", path, why.message())};
}

/// The entries of a folder, sorted. @param name Of the folder for errors. @throws input_error
std::vector<std::string> entries_of(const std::string& folder, const std::string& name) {
  std::error_code ec;
  fs::directory_iterator it{folder, ec};
  if (ec) cannot_read(name, ec);
  std::vector<std::string> out;
  for (; it != fs::directory_iterator{}; it.increment(ec)) {
    if (out.size() == most_entries) {
      fail(name, fmt::format("a folder of more than {} entries", most_entries), "fewer");
    }
    out.push_back(it->path().filename().string());
  }
  if (ec) cannot_read(name, ec);
  std::ranges::sort(out);
  return out;
}

/// An entry of a folder.
struct found {
  descriptor at;
  struct stat status{};
};
/// Looks up a path. Symbolic links are followed only within the folder.
/// @returns Nothing if it does not exist. @throws input_error
std::optional<found> look(const descriptor& folder, const std::string& path) {
  found f{.at = open_below(folder, path)};
  if (!f.at.is_open() && errno == ENOENT) {
    std::error_code ignored;
    if (fs::is_symlink(fs::symlink_status(folder.link() + "/" + path, ignored))) {
      fail(path, "a symbolic link to nothing", "a file or a folder");
    }
    return std::nullopt;
  }
  if (!f.at.is_open() && errno == EXDEV) {
    fail(path, "a symbolic link that is absolute or leaves the repository",
         "a relative one to what is in it");
  }
  if (!f.at.is_open() || ::fstat(f.at.get(), &f.status) != 0) {
    cannot_read(path, {errno, std::generic_category()});
  }
  return f;
}

/// Changes with the content, for all usual ways to write a file.
std::string stamp_of(const std::string& name, const struct stat& s) {
  return fmt::format("{} {} {} {}.{:09};", quote(name), s.st_ino, s.st_size, s.st_mtim.tv_sec,
                     s.st_mtim.tv_nsec);
}

/// @throws input_error If it cannot be read as a config.
std::string content_of(runtime::detail::regular_file& file, const std::string& path) {
  auto text = file.read_all<std::string>(most_config_bytes);
  if (!file.problem().empty()) throw input_error{fmt::format("{}: {}", path, file.problem())};
  return text;
}

/// Version number of a folder: decimal, at least 1, no leading zeros.
std::optional<std::uint64_t> version_of(std::string_view name) {
  const auto n = to_integer(name);
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!n || *n == 0 || *n > most || name.front() == '0') return std::nullopt;
  return n;
}
bool is_decimal(std::string_view name) {
  return std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

class scanner {
 public:
  scanner(std::string dir, std::string name, const std::string& config) : config_{config} {
    out_.dir = std::move(dir);
    out_.name = std::move(name);
  }

  repository_model scan() {
    try {
      look_at_model();
    } catch (const input_error& e) {
      out_.problem = e.what();
    } catch (const fs::filesystem_error& e) {
      out_.problem = fmt::format("{}: cannot be read: {}", out_.name, e.code().message());
    }
    return std::move(out_);
  }

 private:
  void look_at_model() {
    if (!is_model_name(out_.name)) {
      fail("model", quote_short(out_.name),
           "the name of a folder: 1 to 128 letters, digits, '_', '-' and '.', the first no '.'");
    }
    root_ = runtime::detail::open_folder(out_.dir);
    if (!root_.is_open()) cannot_read("the repository's folder", {errno, std::generic_category()});
    auto folder = look(root_, out_.name);
    if (!folder) throw input_error{fmt::format("{}: there is no such model", out_.name)};
    if (!S_ISDIR(folder->status.st_mode)) fail(out_.name, "a file", "a folder");
    folder_ = std::move(folder->at);
    read_config();
    std::vector<std::uint64_t> all = find_versions();
    choose(all);
    for (const std::uint64_t v : all) look_at_version(v);
    const bool none =
        std::ranges::none_of(out_.versions, [](const auto& v) { return v.problem.empty(); });
    if (none) out_.problem = out_.versions.front().problem;
  }

  void read_config() {
    out_.config_file = out_.name + "/config.pbtxt";
    if (!config_.empty()) {
      out_.config_file = out_.name + ": parameters.config";
      return take(parse_model_config_json(out_.config_file, config_));
    }
    const auto there = look(root_, out_.config_file);
    if (!there) return;
    if (!S_ISREG(there->status.st_mode)) fail(out_.config_file, "no plain file", "a file");
    // The file may have been replaced meanwhile.
    runtime::detail::regular_file file{root_, out_.config_file, folder_};
    if (!file.problem().empty()) {
      throw input_error{fmt::format("{}: {}", out_.config_file, file.problem())};
    }
    out_.stamp = stamp_of("config.pbtxt", file.status());
    if (file.size() > most_config_bytes) {
      fail(out_.config_file, fmt::format("a config of {} bytes", file.size()),
           fmt::format("at most {} bytes", most_config_bytes));
    }
    take(parse_model_config(out_.config_file, content_of(file, out_.config_file)));
  }
  void take(model_config c) {
    if (!c.name.empty() && c.name != out_.name) {
      fail(out_.config_file + ": name", quote_short(c.name),
           fmt::format("{}, the folder's name", quote_short(out_.name)));
    }
    c.name = out_.name;
    out_.config = std::move(c);
  }

  std::vector<std::uint64_t> find_versions() {
    std::vector<std::uint64_t> all;
    for (const std::string& e : entries_of(folder_.link(), out_.name)) {
      const std::string path = fmt::format("{}/{}", out_.name, e);
      const std::string own = fmt::format("{}/{}", folder_.link(), e);
      const auto n = version_of(e);
      if (!n && !is_decimal(e)) continue;  // Another folder or file: labels, warmup, README.md.
      if (!n) {
        out_.notes.push_back(fmt::format(
            "{}: ignored: a version's folder is named 1 to 2^63 - 1, without leading zeros", path));
      } else if (fs::is_symlink(own) || fs::is_directory(own)) {
        all.push_back(*n);
      } else {
        out_.notes.push_back(fmt::format("{}: ignored: a version is a folder", path));
      }
    }
    std::ranges::sort(all);
    if (all.empty()) {
      throw input_error{fmt::format("{}: no version: expected a folder such as 1, with {} in it",
                                    out_.name, file_name())};
    }
    return all;
  }

  /// Keeps those that the policy selects.
  void choose(std::vector<std::uint64_t>& all) {
    const version_policy p = out_.config ? out_.config->versions : version_policy{};
    if (p.which == version_policy::choice::latest && all.size() > p.latest) {
      all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(p.latest));
    }
    if (p.which != version_policy::choice::specific) return;
    std::vector<std::uint64_t> chosen;
    for (const std::uint64_t v : p.specific) {
      if (std::ranges::binary_search(all, v)) {
        chosen.push_back(v);
        continue;
      }
      out_.notes.push_back(fmt::format("{}: version_policy names version {}, which has no folder",
                                       out_.config_file, v));
    }
    if (chosen.empty()) {
      const std::string why = std::move(out_.notes.back());
      out_.notes.pop_back();
      throw input_error{why};
    }
    all = std::move(chosen);
  }

  void look_at_version(std::uint64_t number) {
    model_version v{.number = number};
    const std::string folder = fmt::format("{}/{}", out_.name, number);
    v.file = fmt::format("{}/{}", folder, file_name());
    try {
      look_at_files(folder, v);
    } catch (const input_error& e) {
      v.problem = e.what();
    }
    out_.versions.push_back(std::move(v));
  }
  /// @param folder Of the version, or its subfolder with the file.
  void look_at_files(const std::string& folder, model_version& v) const {
    const auto in = look(root_, folder);
    if (!in || !S_ISDIR(in->status.st_mode)) fail(folder, "no folder", "a folder");
    bool has_file = false;
    for (const std::string& e : entries_of(in->at.link(), folder)) {
      if (e.starts_with('.')) continue;
      const std::string path = fmt::format("{}/{}", folder, e);
      const auto f = look(root_, path);
      if (!f) continue;  // It was just removed.
      const struct stat& s = f->status;
      v.stamp += stamp_of(e, s);
      if (S_ISREG(s.st_mode)) v.bytes += static_cast<std::uint64_t>(s.st_size);
      if (S_ISDIR(s.st_mode) && v.file.starts_with(path + '/')) {
        look_at_files(path, v);
        has_file = true;
      }
      if (path != v.file) continue;
      has_file = true;
      if (!S_ISREG(s.st_mode)) fail(path, "no plain file", "a file");
      if (s.st_size == 0) fail(path, "an empty file", "a model");
    }
    const bool is_ensemble = out_.config && !out_.config->steps.empty();
    if (!has_file && !is_ensemble)
      throw input_error{fmt::format("{}: missing: expected a model", v.file)};
  }

  [[nodiscard]] const std::string& file_name() const {
    static const std::string usual = model_config{}.file;
    return out_.config ? out_.config->file : usual;
  }

  const std::string& config_;
  descriptor root_;
  descriptor folder_;  // The model's folder.
  repository_model out_;
};

}  // namespace

std::uint64_t repository_model::memory() const noexcept {
  std::uint64_t all = 0;
  for (const model_version& v : versions) {
    if (!v.problem.empty()) continue;
    all += config && config->memory_bytes ? *config->memory_bytes : v.bytes;
  }
  return all;
}

repository_model scan_model(const std::string& dir, const std::string& name,
                            const std::string& config) {
  return scanner{dir, name, config}.scan();
}

std::vector<repository_model> scan_repository(const std::string& dir) {
  std::vector<repository_model> out;
  for (const std::string& name : entries_of(dir, dir)) {
    if (name.starts_with('.')) continue;
    std::error_code ec;
    const std::string path = fmt::format("{}/{}", dir, name);
    const fs::file_status own = fs::symlink_status(path, ec);
    // A symbolic link may lead to a folder: that is only checked within the repository.
    if (!fs::is_directory(own) && !fs::is_symlink(own)) continue;
    if (out.size() == most_models) {
      fail(dir, fmt::format("a repository of more than {} models", most_models), "fewer");
    }
    out.push_back(scan_model(dir, name));
  }
  return out;
}

std::vector<std::string> read_labels(const repository_model& of, const std::string& file) {
  constexpr std::size_t most_labels = 1'000'000;
  constexpr std::size_t longest_label = 1024;
  const descriptor folder = open_below(runtime::detail::open_folder(of.dir), of.name);
  runtime::detail::regular_file in{folder, file, folder};
  const auto content = in.read_all<std::string>(std::size_t{16} << 20U);
  const auto refuse = [&](std::string_view why) {
    throw input_error{
        fmt::format("{}: label_filename: {} {}", of.config_file, quote_short(file), why)};
  };
  if (!in.problem().empty()) refuse(in.problem());
  if (!is_utf8(content)) refuse("is not UTF-8");
  std::vector<std::string> lines;
  for (std::string_view left = content; !left.empty();) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    std::string_view line = left.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (lines.size() == most_labels || line.size() > longest_label) {
      refuse(fmt::format("has more than {} lines, or one of more than {} bytes", most_labels,
                         longest_label));
    }
    lines.emplace_back(line);
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return lines;
}

std::optional<model_config> config_beside(const std::string& model_file) {
  const fs::path version = fs::absolute(model_file).parent_path();
  const fs::path config = version.parent_path() / "config.pbtxt";
  const std::string number = version.filename().string();
  const bool is_version =
      !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  if (!is_version || !fs::is_regular_file(config)) return std::nullopt;
  runtime::detail::regular_file file{config.string()};
  return parse_model_config(config.string(), content_of(file, config.string()));
}

std::uint32_t max_length_of(const std::string& model_file) {
  const std::optional<model_config> config = config_beside(model_file);
  return config ? config->max_length.value_or(default_max_length) : default_max_length;
}

}  // namespace cohort::formats
