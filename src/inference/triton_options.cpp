// SPDX-License-Identifier: Apache-2.0
#include "triton_options.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace cohort::inference {

std::span<const triton_option> triton_options() {
  using enum triton_option::use;
  static const std::vector<triton_option> all{
      {"--model-repository", ours, "--repository"},
      {"--http-port", ours, "--port"},
      {"--http-address", ours, "--host", "0.0.0.0"},
      {"--metrics-port", ours, "--management-port", "8002"},
      {"--model-control-mode", ours, "--model-control-mode", "none"},
      {"--load-model", ours, "--load-model"},
      {"--repository-poll-secs", ours, "--repository-poll-s"},
      {"--exit-timeout-secs", ours, "--drain-timeout-s", "30"},
      {"--allow-http", kept},
      {"--allow-metrics", kept},
      {"--exit-on-error", kept},
      {"--strict-readiness", kept},
      {"--id", kept},
      {"--log-info", kept},
      {"--log-warning", kept},
      {"--log-error", kept},
      {"--cache-config", kept},
      {"--response-cache-byte-size", kept},
      {"--log-verbose", ignored},
      {"--grpc-port", ignored},
      {"--allow-grpc", ignored},
      {"--backend-directory", ignored},
      {"--backend-config", ignored},
      {"--http-thread-count", ignored},
      {"--strict-model-config", ignored},
      {"--disable-auto-complete-config", ignored, "", "", false},
      {"--cuda-memory-pool-byte-size", ignored},
      {"--pinned-memory-pool-byte-size", ignored},
      {"--min-supported-compute-capability", ignored},
      {"--rate-limit", ignored}};
  return all;
}

triton_command from_triton(const std::vector<std::string>& arguments) {
  triton_command c;
  const auto all = triton_options();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    const std::string name = a.substr(0, a.find('='));
    const auto o = std::ranges::find(all, name, &triton_option::name);
    if (o == all.end() || o->is == triton_option::use::kept) {
      c.arguments.push_back(a);
    } else if (o->is == triton_option::use::ours) {
      c.arguments.push_back(o->to + a.substr(name.size()));
      if (o->to != name) c.given_as[o->to] = name;
    } else {
      if (std::ranges::count(c.ignored, name) == 0) c.ignored.push_back(name);
      if (o->has_value && name == a) ++i;
    }
  }
  for (const triton_option& o : all) {
    const auto is_it = [&o](const std::string& a) { return a.substr(0, a.find('=')) == o.to; };
    if (o.unless.empty() || std::ranges::any_of(c.arguments, is_it)) continue;
    c.arguments.insert(c.arguments.end(), {o.to, o.unless});
  }
  return c;
}

}  // namespace cohort::inference
