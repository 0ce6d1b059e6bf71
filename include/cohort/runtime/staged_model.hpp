// SPDX-License-Identifier: Apache-2.0
/// @file
/// The `staged_model` concept: a model as a list of stages that the user writes once.
#pragma once

#include <cohort/core/version.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cohort::runtime {

/// What a model may say of a slot that it was asked of, and did not compute.
struct slot_state {
  static constexpr std::uint8_t fit = 0;    ///< It was computed.
  static constexpr std::uint8_t unfit = 1;  ///< Its values are to blame.
  /// The run failed because of some slots, and whether this is one of them was not found out.
  static constexpr std::uint8_t unknown = 2;
};

/// The rows of a batch that a stage works on. Slot i of the slice lies at
/// `base + (first + i) * stride`, both for what the stage reads and for what it writes.
struct slice {
  std::byte* input;          ///< Of slot 0 at the boundary before the stage, device memory.
  std::byte* output;         ///< Of slot 0 at the boundary after the stage, device memory.
  std::size_t input_stride;  ///< Bytes between slots; at least the bytes per request there.
  std::size_t output_stride;
  std::uint32_t first;     ///< First slot.
  std::uint32_t count;     ///< Slots; at least 1.
  std::uint32_t size = 0;  ///< Input size that all its slots are padded to, in units of the model;
                           ///< 0: the largest. Models whose inputs are of one size ignore it.
  /// A byte for each slot of the slice, in host memory, which stays until the work on the stream is
  /// done; or null. A model that can tell that it is the values of a slot, not the device, that
  /// cannot be computed sets that byte to `slot_state::unfit` when it runs, instead of failing: its
  /// request fails alone, and is not tried again. One of a slot that is `slot_state::unknown` fails
  /// as with the whole batch. Others may leave it as it is.
  std::uint8_t* unfit = nullptr;
  /// True once nobody wants the result any more, as the work hangs; it stays until the work on the
  /// stream is done; or null. A model that can ends such work early, failing the stream.
  const std::atomic<bool>* given_up = nullptr;
  /// The row is a sample that only shows whether the device works: a model that cannot compute it
  /// may compute another one.
  bool is_sample = false;
};

namespace requirement {
template <class M>
concept names_itself = requires(const M& m) {
  { m.name() } -> std::convertible_to<std::string_view>;
};
template <class M>
concept has_stages = requires(const M& m) {
  { m.stages() } -> std::convertible_to<std::size_t>;
};
template <class M>
concept tells_bytes_at_boundaries = requires(const M& m, std::size_t boundary) {
  { m.boundary_bytes(boundary) } -> std::convertible_to<std::size_t>;
};
template <class M, class Stream>
concept enqueues_stages = requires(M& m, std::size_t stage, Stream& stream, const slice& s) {
  m.enqueue(stage, stream, s);
};
template <class M>
concept tells_exits = requires(const M& m, std::size_t stage) {
  { m.has_exit(stage) } -> std::same_as<bool>;
};
template <class M, class Stream>
concept enqueues_exits = requires(M& m, std::size_t stage, Stream& stream, const slice& s) {
  m.enqueue_exit(stage, stream, s);
};
}  // namespace requirement

/// A model of `stages()` stages run in order. Boundary 0 is its input, boundary i what stage i − 1
/// writes; `boundary_bytes(i)` is per request. `enqueue(stage, stream, slice)` puts the work of one
/// stage on a stream and returns at once; it may be called for different slices of one batch in any
/// order, but for one slot in the order of the stages, and never for one model by two threads at
/// once. Result of a slot: the same bits whatever other slots share the call is not required; the
/// stated tolerance is. Models: those in src/models, `profile_model`.
template <class M, class Stream>
concept staged_model =
    requirement::names_itself<M> && requirement::has_stages<M> &&
    requirement::tells_bytes_at_boundaries<M> && requirement::enqueues_stages<M, Stream>;

/// A staged model that knows something before its end, for early exit and layer skip. Where
/// `has_exit(stage)`, `enqueue_exit(stage, stream, slice)` computes from what the stage has
/// written, the slice's input, rows of the form of the model's output: the result of a request that
/// leaves here, or whatever a request's future is judged by. Otherwise as `enqueue`.
template <class M, class Stream>
concept exiting_model = staged_model<M, Stream> && requirement::tells_exits<M> &&
                        requirement::enqueues_exits<M, Stream>;

}  // namespace cohort::runtime
