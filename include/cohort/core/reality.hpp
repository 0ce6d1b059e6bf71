// SPDX-License-Identifier: Apache-2.0
/// @file
/// How machines differ from their profiles: `reality`, applied by simulations and emulated devices.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cohort {

/// The actual time of batches: actual = profile × bias × lognormal × straggler. None by default.
struct noise_options {
  double sigma = 0;        ///< Spread of the lognormal factor (mean 1); 0 to 3.
  double bias = 1;         ///< Mean factor of a model; above 0, at most 100.
  double bias_spread = 0;  ///< Each model draws its bias in bias ± bias_spread / 2; below 2 bias.
  double straggler_share = 0;   ///< Part of the batches that take longer; 0 to 1.
  double straggler_factor = 1;  ///< How many times as long; 1 to 1000.
  duration correlation{0};  ///< If above 0, all batches share one lognormal factor for this long.

  [[nodiscard]] bool is_none() const noexcept {
    return sigma == 0 && bias == 1 && bias_spread == 0 && straggler_share == 0;
  }

  /// @throws config_error If a field is outside its range.
  void validate() const {
    expects(sigma >= 0 && sigma <= 3, "noise: sigma must be in 0 to 3");
    expects(bias > 0 && bias <= 100, "noise: bias must be above 0, at most 100");
    expects(bias_spread >= 0 && bias_spread < 2 * bias,
            "noise: bias_spread must be at least 0 and below 2 * bias");
    expects(straggler_share >= 0 && straggler_share <= 1,
            "noise: straggler_share must be in 0 to 1");
    expects(straggler_factor >= 1 && straggler_factor <= 1000,
            "noise: straggler_factor must be in 1 to 1000");
    expects(correlation >= duration{0}, "noise: correlation must be at least 0");
  }
};

/// How late timers fire: exponential with this mean, and `tail` more in the fraction `tail_share`
/// of the cases.
struct lateness_options {
  duration mean{0};       ///< At least 0.
  duration tail{0};       ///< At least 0.
  double tail_share = 0;  ///< 0 to 1.

  [[nodiscard]] bool is_none() const noexcept {
    return mean == duration{0} && (tail == duration{0} || tail_share == 0);
  }
};

/// The kinds of device faults.
enum class fault_kind : std::uint8_t {
  hang,  ///< Nothing progresses. If the fault never ends, neither do the device's batches.
  fail,  ///< Running work fails when the fault begins; work started during it fails at once.
  slow,  ///< Everything takes `factor` times as long.
};

/// A fault of one device. Faults may overlap.
struct fault {
  duration at{0};  ///< Since the start of the run; at least 0.
  device_id device;
  fault_kind kind = fault_kind::hang;
  duration lasts = unbounded;  ///< Above 0.
  double factor = 1;           ///< For `slow`: 1 to 1000.
};

/// All deviations together. By default there are none: machines match their profiles.
struct reality {
  noise_options noise;
  /// Replaces `noise` for the first models, indexed by id; `correlation` always comes from `noise`.
  std::vector<noise_options> models{};
  lateness_options timers;
  std::vector<fault> faults;

  [[nodiscard]] bool is_ideal() const noexcept {
    return noise.is_none() && timers.is_none() && faults.empty() &&
           std::ranges::all_of(models, &noise_options::is_none);
  }

  /// @throws config_error If a field is outside its range.
  void validate() const {
    noise.validate();
    for (const noise_options& n : models) n.validate();
    expects(timers.mean >= duration{0} && timers.tail >= duration{0},
            "timers: mean and tail must be at least 0");
    expects(timers.tail_share >= 0 && timers.tail_share <= 1,
            "timers: tail_share must be in 0 to 1");
    for (const fault& f : faults) {
      expects(f.at >= duration{0}, "fault: at must be at least 0");
      expects(f.lasts > duration{0}, "fault: lasts must be above 0");
      expects(f.kind != fault_kind::slow || (f.factor >= 1 && f.factor <= 1000),
              "fault: factor must be in 1 to 1000");
    }
  }
};

}  // namespace cohort
