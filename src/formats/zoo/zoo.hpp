// SPDX-License-Identifier: Apache-2.0
/// @file
/// The model zoos of the Symphony paper: profiles measured on an NVIDIA 1080Ti (its Table 3) and
/// an A100 (Table 4), compiled in from the CSV files beside this header.
#pragma once

#include <span>
#include <string_view>

namespace cohort::formats {

/// One model: a batch of b runs for alpha_ms · b + beta_ms.
struct zoo_row {
  std::string_view name;
  double alpha_ms;
  double beta_ms;
  double slo_ms;
};

/// The models of zoo "1080ti" (35) or "a100" (37), in the paper's order; none if there is no such
/// zoo. The rows live as long as the program.
[[nodiscard]] std::span<const zoo_row> zoo(std::string_view which) noexcept;

}  // namespace cohort::formats
