// SPDX-License-Identifier: Apache-2.0
#include "identity.hpp"

#include <cohort/core/error.hpp>
#include <runtime/regular_file.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "definition.hpp"

namespace cohort::models {
namespace {

std::string describe(const tensor_info& t) {
  return fmt::format("{} {} [{}]", t.name, name_of(t.type), fmt::join(t.shape, ","));
}

/// Passes a file's content to `take(std::string_view)`, piece by piece.
template <class Take>
void read(const std::string& path, const std::string& below, Take take) {
  namespace files = runtime::detail;
  const auto open = [&] {
    if (below.empty()) return files::regular_file{path};
    const files::descriptor top = files::open_folder(below);
    return files::regular_file{top, path, files::open_below(top, path.substr(0, path.find('/')))};
  };
  files::regular_file file = open();
  std::vector<char> chunk(std::size_t{1} << 20U);
  while (const std::size_t n = file.read(chunk.data(), chunk.size())) {
    take(std::string_view{chunk.data(), n});
  }
  if (!file.problem().empty()) throw config_error{fmt::format("{}: {}", path, file.problem())};
}

}  // namespace

std::string fingerprint::text() const { return fmt::format("{:016x}", state_); }

std::string fingerprint_of_file(const std::string& path, const std::string& below) {
  fingerprint f;
  read(path, below, [&](std::string_view chunk) { f.add(chunk); });
  return f.text();
}

bool is_in_file(std::string_view bytes, const std::string& path, const std::string& below) {
  bool is_there = false;
  std::string seen;  // Includes the end of the previous chunk.
  read(path, below, [&](std::string_view chunk) {
    if (is_there) return;
    seen += chunk;
    is_there = seen.find(bytes) != std::string::npos;
    seen.erase(0, seen.size() - std::min(seen.size(), bytes.size()));
  });
  return is_there;
}

model_identity identify(const std::string& name, std::uint64_t seed, const std::string& path) {
  const definition d = definition_of(name);
  fingerprint parameters;
  for (const tensor_spec& t : d.tensors) {
    parameters.add(fmt::format("{} [{}];", t.name, fmt::join(t.shape, ",")));
  }
  return {
      .tensors = fmt::format("{} to {}, {} parameter tensors {}", describe(d.info.inputs.front()),
                             describe(d.info.outputs.front()), d.tensors.size(), parameters.text()),
      .weights = path.empty() ? fmt::format("generated from seed {}", seed)
                              : fmt::format("content {}", fingerprint_of_file(path))};
}

}  // namespace cohort::models
