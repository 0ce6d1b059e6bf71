// SPDX-License-Identifier: Apache-2.0
/// @file
/// The packers that `pack` knows, by name.
#pragma once

#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace cohort::registry {

using possible_interference = std::optional<packing::interference_model>;

/// What the user may say of a packer, as text.
struct packer_options {
  std::optional<std::string> algorithm;
  std::string slo_rule = "own";
  std::optional<std::string> order;
  std::optional<std::string> knee;
  std::optional<std::string> fit;
  std::optional<std::string> pad;
  std::string time_limit_s = "10";
  bool interference = false;
};

/// A packer as the user chose it.
struct pack_algorithm {
  std::string name;
  packing::slo_rule rule = packing::slo_rule::own;
  bool interference = false;  ///< Plans must hold with interference.
  bool padded = false;        ///< They are made for the worst neighbour.
  std::function<packing::packing_result(const std::shared_ptr<const packing::latency_grid>&,
                                        const packing::packing_problem&,
                                        const possible_interference&)>
      run{};
};

/// @throws input_error If an option is bad, or does not go with the algorithm.
[[nodiscard]] pack_algorithm choose_algorithm(const packer_options& o);

}  // namespace cohort::registry
