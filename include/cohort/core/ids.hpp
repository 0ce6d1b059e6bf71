// SPDX-License-Identifier: Apache-2.0
/// @file
/// Identifiers that cannot be mixed up, and the share of a device.
#pragma once

#include <cohort/core/error.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>

namespace cohort {

/// A number that names one thing of one kind. `Tag` makes each kind a type of its own.
template <class Tag, class Rep = std::uint32_t>
class strong_id {
 public:
  using rep = Rep;

  constexpr strong_id() noexcept = default;
  constexpr explicit strong_id(Rep value) noexcept : value_{value} {}

  [[nodiscard]] constexpr Rep value() const noexcept { return value_; }
  /// The id as an index into a dense array.
  [[nodiscard]] constexpr std::size_t index() const noexcept { return value_; }
  friend constexpr auto operator<=>(strong_id, strong_id) noexcept = default;

 private:
  Rep value_{};
};

using model_id = strong_id<struct model_tag>;
using device_id = strong_id<struct device_tag>;
using request_id = strong_id<struct request_tag, std::uint64_t>;

/// One slot of a device for a batch. A device of capacity c has c entries and runs one batch in
/// each at a time. A `device_id` converts to the device's first entry, the only one if the capacity
/// is 1.
struct device_entry {
  device_id device;
  std::uint32_t entry = 0;  ///< Below the device's capacity.

  constexpr device_entry() noexcept = default;
  constexpr device_entry(device_id d, std::uint32_t e = 0) noexcept : device{d}, entry{e} {}
  friend constexpr bool operator==(device_entry, device_entry) noexcept = default;
};

/// Names a batch of an entry. Compares as its entry does.
struct batch_ticket : device_entry {
  std::uint64_t number = 0;  ///< Unique within an engine; 0 means the entry's oldest batch.

  constexpr batch_ticket() noexcept = default;
  constexpr batch_ticket(device_entry at, std::uint64_t n = 0) noexcept
      : device_entry{at}, number{n} {}
  constexpr batch_ticket(device_id d, std::uint32_t e = 0, std::uint64_t n = 0) noexcept
      : device_entry{d, e}, number{n} {}
};

/// The part of a device's compute given to a partition, in percent: 1 to 100.
class device_share {
 public:
  constexpr device_share() noexcept = default;  ///< The whole device.
  /// @throws config_error If `percent` is not in 1 to 100.
  constexpr explicit device_share(unsigned percent) : percent_{percent} {
    expects(percent >= 1 && percent <= 100, "device_share: percent must be in 1 to 100");
  }

  [[nodiscard]] constexpr unsigned percent() const noexcept { return percent_; }
  [[nodiscard]] constexpr double fraction() const noexcept { return percent_ / 100.0; }
  friend constexpr auto operator<=>(device_share, device_share) noexcept = default;

 private:
  unsigned percent_ = 100;
};

}  // namespace cohort
