// SPDX-License-Identifier: Apache-2.0
#include "shared_regions.hpp"

#include <fmt/format.h>

#include <simdjson.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <variant>

#include "json_fields.hpp"

namespace cohort::serve {
namespace {

using namespace json;

constexpr std::size_t longest_name = 255;  // Limit for regions, and for segments in the system.

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= longest_name && std::ranges::none_of(name, [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
}

/// @returns Its size in bytes; 0 if it is no segment.
std::uint64_t size_of(const runtime::detail::descriptor& segment) {
  struct stat s{};
  if (::fstat(segment.get(), &s) != 0 || !S_ISREG(s.st_mode)) return 0;
  return static_cast<std::uint64_t>(s.st_size);
}

std::uint64_t bytes(const dom::element& e, std::string_view name) {
  return as<std::uint64_t>(e, {}, name, "a whole number of bytes from 0");
}

std::shared_ptr<const shared_region> open(const std::string& name, const dom::object& o) {
  const std::string key{text(needed(o, "key", {}), {}, "key")};
  const auto given = field(o, "offset", {});
  const std::uint64_t offset = given ? bytes(*given, "offset") : 0;
  const std::uint64_t size = bytes(needed(o, "byte_size", {}), "byte_size");
  const std::string_view bare = std::string_view{key}.substr(key.starts_with('/') ? 1 : 0);
  if (!is_name(bare) || bare.find('/') != bare.npos || bare == "." || bare == "..") {
    reject(
        fmt::format("key is {}, expected the name of a POSIX shared memory segment: / and then "
                    "1 to {} characters, none of them a /",
                    json_string(std::string_view{key}.substr(0, longest_name)), longest_name));
  }
  if (size == 0) reject("byte_size is 0, expected at least 1");
  runtime::detail::descriptor segment{::shm_open(key.c_str(), O_RDWR | O_CLOEXEC, 0)};
  if (!segment.is_open()) {
    reject(
        fmt::format("shared memory '{}' cannot be opened: {}", key, runtime::detail::last_error()));
  }
  const std::uint64_t there = size_of(segment);
  if (offset > there || size > there - offset) {
    reject(fmt::format("offset is {} and byte_size {}, but shared memory '{}' has {} bytes", offset,
                       size, key, there));
  }
  return std::make_shared<const shared_region>(std::move(segment), name, key, offset, size);
}

}  // namespace

std::string shared_region::read(std::uint64_t at, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n =
        ::pread(segment_.get(), to.data(), to.size(), static_cast<off_t>(offset_ + at));
    if (n > 0) {
      to = to.subspan(static_cast<std::size_t>(n));
      at += static_cast<std::uint64_t>(n);
    } else if (n == 0) {
      return fmt::format("shared memory region '{}' is shorter than when it was registered", name_);
    } else if (errno != EINTR) {
      return fmt::format("shared memory region '{}' cannot be read: {}", name_,
                         runtime::detail::last_error());
    }
  }
  return {};
}

std::string shared_region::write(std::uint64_t at, std::span<const std::byte> from) const {
  if (offset_ + at + from.size() > size_of(segment_)) {
    return fmt::format("shared memory region '{}' is shorter than when it was registered", name_);
  }
  while (!from.empty()) {
    const ssize_t n =
        ::pwrite(segment_.get(), from.data(), from.size(), static_cast<off_t>(offset_ + at));
    if (n > 0) {
      from = from.subspan(static_cast<std::size_t>(n));
      at += static_cast<std::uint64_t>(n);
    } else if (n == 0 || errno != EINTR) {
      return fmt::format("shared memory region '{}' cannot be written: {}", name_,
                         runtime::detail::last_error());
    }
  }
  return {};
}

std::optional<protocol_error> shared_regions::enter(const std::string& name,
                                                    std::string_view body) {
  if (!is_name(name)) {
    return protocol_error{400, fmt::format("the region's name is not one: expected 1 to {} "
                                           "characters, none of them a control character",
                                           longest_name)};
  }
  if (all_.contains(name)) {
    return protocol_error{400,
                          fmt::format("shared memory region '{}' is registered already", name)};
  }
  if (all_.size() >= most) {
    return protocol_error{400, fmt::format("{} shared memory regions are registered: expected at "
                                           "most so many, unregister some",
                                           most)};
  }
  auto made = read_body(body, [&](const dom::object& o) { return open(name, o); });
  if (auto* const e = std::get_if<protocol_error>(&made)) return std::move(*e);
  const std::lock_guard lock{mutex_};
  all_.emplace(name, std::move(std::get<0>(made)));
  return std::nullopt;
}

std::shared_ptr<const shared_region> shared_regions::find(std::string_view name) const {
  const std::lock_guard lock{mutex_};
  const auto at = all_.find(name);
  return at == all_.end() ? nullptr : at->second;
}

std::variant<std::string, protocol_error> shared_regions::status(std::string_view name) const {
  std::string list;
  for (const auto& [its, r] : all_) {
    if (!name.empty() && its != name) continue;
    list += fmt::format(R"({}{{"name":{},"key":{},"offset":{},"byte_size":{}}})",
                        list.empty() ? "" : ",", json_string(its), json_string(r->key()),
                        r->offset(), r->bytes());
  }
  if (list.empty() && !name.empty()) {
    return protocol_error{400, fmt::format("shared memory region '{}' is unknown", name)};
  }
  return '[' + list + ']';
}

}  // namespace cohort::serve
