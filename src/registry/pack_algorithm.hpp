// SPDX-License-Identifier: Apache-2.0
/// @file
/// The packers by name, and a packer with its options. Their table is in pack_algorithm.cpp.
#pragma once

#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "name_list.hpp"

namespace cohort::registry {

using possible_interference = std::optional<packing::interference_model>;
using pack_function = std::function<packing::packing_result(
    const std::shared_ptr<const packing::latency_grid>&, const packing::packing_problem&,
    const possible_interference&)>;

/// The values of --algorithm, --order, --knee, --fit, --slo-rule and --pad.
[[nodiscard]] const name_list& packer_names();
[[nodiscard]] const name_list& order_names();
[[nodiscard]] const name_list& knee_names();
[[nodiscard]] const name_list& fit_names();
[[nodiscard]] const name_list& slo_rule_names();
[[nodiscard]] const name_list& pad_names();

/// Further properties of a packer.
struct packer_traits {
  bool takes_rules = false;   ///< Accepts --order, --knee and --fit.
  bool takes_limit = false;   ///< Accepts --time-limit-s.
  bool interference = false;  ///< Its plans always hold with interference.
  std::uint32_t parts = 0;    ///< Cuts each device into this many equal ones; 0: any sizes.
};
/// The packers with a property: "elastic and elastic-int".
[[nodiscard]] std::string packers_with(bool packer_traits::* trait);

/// Whether the packer of that name has a property; false if there is none.
[[nodiscard]] bool has_trait(std::string_view packer, bool packer_traits::* trait);

/// Options of a packer, as the user's text.
struct packer_options {
  std::optional<std::string> algorithm{};
  std::string slo_rule = "own";
  std::optional<std::string> order{};
  std::optional<std::string> knee{};
  std::optional<std::string> fit{};
  std::optional<std::string> pad{};
  std::optional<std::string> time_limit_s{};  ///< Default 10 if the packer has one.
  bool interference = false;
};

/// A packer chosen by the user.
struct pack_algorithm {
  std::string name;
  packer_traits traits{};
  packing::slo_rule rule = packing::slo_rule::own;
  bool interference = false;  ///< Plans must hold with interference.
  bool padded = false;        ///< Plans are made for the worst neighbour.
  pack_function run{};
};

/// @throws input_error If an option is bad, or unsuitable for the algorithm.
[[nodiscard]] pack_algorithm choose_algorithm(const packer_options& o);

}  // namespace cohort::registry
