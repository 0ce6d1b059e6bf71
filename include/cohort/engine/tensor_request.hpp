// SPDX-License-Identifier: Apache-2.0
/// @file
/// A request with its data, and the host memory for passing its rows.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/request.hpp>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace cohort::engine {

/// A piece of a row, with its offset.
struct row_piece {
  std::size_t offset = 0;
  std::span<const std::byte> bytes;
};

/// A request with its data: input rows and as many output rows, in the caller's host memory. A row
/// of several tensors has the layout of `runtime::row_layout`, and rows are contiguous. Several
/// rows run together or not at all; pipelines take one.
struct tensor_request : request {
  std::span<const std::byte> input;  ///< The beginning of the rows; at most their length.
  /// Further pieces, in ascending order, without overlap. Bytes that no piece covers are zero.
  std::span<const row_piece> more;
  /// The rows, or only the beginning that is wanted.
  std::span<std::byte> output;
  /// Bit mask of the wanted model outputs; other parts of the row may have any value. The last bit
  /// stands for all further outputs.
  std::uint64_t wanted = ~std::uint64_t{0};
  // For a service with a plan:
  std::uint8_t moves = 0;   ///< Instances that gave it up.
  bool was_failed = false;  ///< One of them failed a batch with it.
};

/// Assembles a request's input, its only copy. @param to Memory for its rows.
inline void copy_rows(std::byte* to, std::size_t row_bytes, const tensor_request& r) noexcept {
  const std::size_t all = r.rows * row_bytes;
  std::size_t end = 0;
  const auto put = [&](std::size_t offset, std::span<const std::byte> piece) {
    COHORT_ASSERT(offset >= end && offset <= all && piece.size() <= all - offset);
    if (offset > end) std::memset(to + end, 0, offset - end);
    if (!piece.empty()) std::memcpy(to + offset, piece.data(), piece.size());
    end = offset + piece.size();
  };
  put(0, r.input);
  for (const row_piece& p : r.more) put(p.offset, p.bytes);
  if (end < all) std::memset(to + end, 0, all - end);
}

/// An executor with its own host memory, `allocate_pinned(bytes)`, for copies: with other memory
/// its `copy` would block the caller.
template <class E>
concept needs_pinned_memory = requires(E& e, std::size_t bytes) {
  { e.allocate_pinned(bytes).data() } -> std::same_as<std::byte*>;
};

/// An executor with buffers that the host may read and write while no work uses them:
/// `E::buffers_are_host_memory`. Rows are written there directly.
template <class E>
concept has_host_buffers =
    !needs_pinned_memory<E> && requires { requires E::buffers_are_host_memory; };

/// Rows of requests on their way in and out, in separate host memory: a hung device may keep it
/// after its requests have ended.
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
