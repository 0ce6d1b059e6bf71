// SPDX-License-Identifier: Apache-2.0
/// @file
/// A request with its data, and the host memory that its rows pass through.
#pragma once

#include <cohort/core/request.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace cohort::engine {

/// A request with its data: one row in, one row out, in host memory of the caller's.
struct tensor_request : request {
  std::span<const std::byte> input;
  std::span<std::byte> output;
  std::uint8_t moves = 0;  ///< Of a service with a plan: instances that gave it up.
};

/// An executor with host memory of its own, `allocate_pinned(bytes)`, that copies should use: with
/// any other its `copy` would hold the caller.
template <class E>
concept needs_pinned_memory = requires(E& e, std::size_t bytes) {
  { e.allocate_pinned(bytes).data() } -> std::same_as<std::byte*>;
};

/// Rows of requests on their way in and out, in host memory that is no request's: a device that
/// hangs may keep it when its requests have ended.
template <class Executor>
class staging_rows {
 public:
  staging_rows() = default;
  staging_rows(Executor& e, std::size_t input_bytes, std::size_t output_bytes)
      : in_{make(e, input_bytes)}, out_{make(e, output_bytes)} {}

  [[nodiscard]] std::byte* in() noexcept { return in_.data(); }
  [[nodiscard]] std::byte* out() noexcept { return out_.data(); }

 private:
  static auto make(Executor& e, std::size_t bytes) {
    if constexpr (needs_pinned_memory<Executor>) {
      return e.allocate_pinned(bytes);
    } else {
      static_cast<void>(e);
      return std::vector<std::byte>(bytes);
    }
  }
  using memory = decltype(make(std::declval<Executor&>(), 1));

  memory in_, out_;
};

}  // namespace cohort::engine
