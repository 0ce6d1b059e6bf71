// SPDX-License-Identifier: Apache-2.0
/// @file
/// An inference server with one emulated device and one model, for tests of what is around them.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <support/child_server.hpp>

namespace cohort::test {

class eager_server : public child_server {
 public:
  explicit eager_server(std::vector<std::string> more)
      : child_server{INFERENCE_SERVER, with(std::move(more))} {
    REQUIRE_MESSAGE(port() != 0, first_line);
  }
  [[nodiscard]] std::uint16_t management_port() const { return management_port_of(*this); }
  /// Eager and with a long SLO: what is tested must not depend on how busy the machine is.
  static std::vector<std::string> with(std::vector<std::string> more) {
    more.insert(more.end(), {"--executor", "emulated", "--devices", "1", "--policy", "eager",
                             "--slo-ms", "ResNet50=60000", "--models", "ResNet50"});
    return more;
  }
};

inline const std::string infer = "/v2/models/ResNet50/infer";
inline const std::string body =
    R"({"inputs":[{"name":"input","datatype":"FP32","shape":[1,1],"data":[1]}]})";
/// A reality in which device 0 takes a batch and never ends it.
inline const std::string device_0_hangs =
    R"({"faults": [{"at_s": 0, "device": 0, "kind": "hang"}]})";

}  // namespace cohort::test
