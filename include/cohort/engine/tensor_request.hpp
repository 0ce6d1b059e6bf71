// SPDX-License-Identifier: Apache-2.0
/// @file
/// A request with its data, and the host memory that its rows pass through.
#pragma once

#include <cohort/core/request.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

namespace cohort::engine {

/// A request with its data: one row in, one row out, in host memory of the caller's.
struct tensor_request : request {
  std::span<const std::byte> input;
  std::span<std::byte> output;
};

/// An executor with host memory of its own, `allocate_pinned(bytes)`, that copies should use: with
/// any other its `copy` would hold the caller.
template <class E>
concept needs_pinned_memory = requires(E& e, std::size_t bytes) {
  { e.allocate_pinned(bytes).data() } -> std::same_as<std::byte*>;
};

namespace detail {
struct no_pinned_rows {};
/// Rows on their way in and out, in the executor's host memory.
template <class Pinned>
struct pinned_rows {
  Pinned in, out;
};
template <class E>
struct pinned_rows_of {
  using type = no_pinned_rows;
};
template <needs_pinned_memory E>
struct pinned_rows_of<E> {
  using type = pinned_rows<decltype(std::declval<E&>().allocate_pinned(1))>;
};
}  // namespace detail

}  // namespace cohort::engine
