// SPDX-License-Identifier: Apache-2.0
/// @file
/// How large the models of `cohort workload --zoo a100` are.
#pragma once

#include <array>

namespace cohort::bench {

/// MB of weights in the order of src/formats/zoo/a100.csv: as Keras Applications lists them; the
/// two MobileNetV3, SSDMobilenet and BERT, which it does not list, by estimate.
inline constexpr std::array<double, 37> zoo_weights_mb{
    33, 80, 57, 98, 29, 171, 232, 171, 22,  31,  98,  232, 14,  59,  215, 34,  23,  29, 36,
    12, 92, 16, 88, 42, 528, 48,  88,  549, 343, 220, 75,  479, 118, 27,  166, 256, 440};

}  // namespace cohort::bench
