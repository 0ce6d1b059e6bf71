// SPDX-License-Identifier: Apache-2.0
/// @file
/// The interface between the layers above and a device: the `executor`, which runs work, and the
/// `staged_model`, the list of stages that the user writes once.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/runtime/tensor.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cohort::runtime {

/// A copy of `rows` rows of `row_bytes` bytes; the pitches are the distances between row starts.
/// A plain copy is one row. Source and destination must not overlap.
struct copy_request {
  void* destination;
  const void* source;
  std::size_t row_bytes;
  std::size_t rows = 1;
  std::size_t destination_pitch = 0;  ///< At least row_bytes if rows > 1.
  std::size_t source_pitch = 0;       ///< At least row_bytes if rows > 1.
};

/// C = alpha · op(A) · op(B) + beta · C, row-major, `batches` times with the given strides (in
/// elements). op(A) is m × k, op(B) is k × n, C is m × n.
struct gemm_request {
  data_type type = data_type::f32;  ///< f32, f16 or bf16.
  bool transpose_a = false;
  bool transpose_b = false;
  std::size_t m, n, k;
  float alpha = 1.0F;
  const void* a;
  std::size_t lda;  ///< Distance between rows of A as stored, in elements.
  const void* b;
  std::size_t ldb;
  float beta = 0.0F;
  void* c;
  std::size_t ldc;
  std::size_t batches = 1;
  std::size_t stride_a = 0;
  std::size_t stride_b = 0;
  std::size_t stride_c = 0;
};

/// A callback, called once when the work before it on its stream has finished. Intrusive: the
/// caller owns it and keeps it alive until the call. It runs on a thread of the executor, must not
/// block and must not call the executor. `failed` means that work of its stream failed.
struct completion {
  using function = void (*)(completion& self, bool failed) noexcept;
  function invoke = nullptr;
  /// The error text if the work failed and the executor knows why, else null. It ends with a zero
  /// and is valid during the call.
  const char* error = nullptr;
};

namespace requirement {
template <class E>
concept copies_and_multiplies =
    requires(E& e, typename E::stream& s, const copy_request& c, const gemm_request& g) {
      e.copy(s, c);
      e.gemm(s, g);
    };
template <class E>
concept launches_host_work =
    requires(E& e, typename E::stream& s, void (*work)()) { e.launch(s, work); };
}  // namespace requirement

/// A device that runs work asynchronously, in streams ordered by events. Semantics:
/// * A stream runs its work in the order of the calls, one piece at a time, and later than each
///   call; calls never block for the work. Different streams are not ordered.
/// * `record(s, v)` marks the work so far on s; a later record replaces an earlier one.
///   `wait(s, v)` lets later work of s start only when the work marked by the latest record of v
///   before this call has finished; no effect if v was never recorded. The host does not wait.
/// * `is_done(v)`: whether the work marked by the latest record has finished; true if none was.
/// * `copy` and `gemm` read and write when they run, not when they are called.
/// * `notify(s, c)`: calls c once when the work before it on s has finished.
/// * `make_stream(share)` binds the stream to a partition of that share of the device's compute.
/// * `allocate` takes from a pool made at start, and may wait for nothing. A buffer may be
///   destroyed only when no work that uses it is outstanding.
/// Destroying a stream waits for its work. Errors in configuration throw `config_error`, an
/// exhausted pool `resource_error`; failures of work are told by `completion`.
/// Thread safety: any thread may use an executor; one stream or event by one thread at a time.
/// Models: `host_executor`, `emulated_executor`, `cuda_executor`.
template <class E>
concept executor = requires(E& e, device_share share, std::size_t bytes, typename E::stream& s,
                            typename E::event& v, completion& done) {
  typename E::stream;  // Owning handles: movable, closed by their destructors.
  typename E::event;
  typename E::buffer;  // Device memory: data() and size().
  { e.make_stream(share) } -> std::same_as<typename E::stream>;
  { e.make_event() } -> std::same_as<typename E::event>;
  { e.allocate(bytes) } -> std::same_as<typename E::buffer>;
  e.record(s, v);
  e.wait(s, v);
  { e.is_done(v) } -> std::same_as<bool>;
  e.notify(s, done);
} && requirement::copies_and_multiplies<E>;

/// An executor that runs host work in the order of a stream, for models that compute on the CPU or
/// call another library. Semantics: `launch(s, f)` moves f away and runs `f()` once, after the work
/// before it on s and before the work behind it. f sees the writes of the earlier work, and the
/// later work sees those of f. f may block its stream, not the caller. An exception from f fails
/// the stream's next notification, with the text of the first exception, and the stream goes on. f
/// is destroyed when it has run, must not call the executor, can be moved without throwing, and may
/// have any size up to 128 bytes; larger ones may be refused by the compiler. Thread safety: as for
/// the stream's other calls; f runs on a thread of the executor. Models: `host_executor`,
/// `emulated_executor`.
template <class E>
concept launching_executor = executor<E> && requirement::launches_host_work<E>;

/// An executor whose time its caller drives: everything happens in `advance(now)`, which must be
/// called at `next_event()`. `now()` is the time of the last call; within a call, the time of the
/// current event. Models: `emulated_executor`.
template <class E>
concept driven_executor = executor<E> && requires(E& e, const E& c, time_point now) {
  { c.next_event() } -> std::same_as<time_point>;
  { c.now() } -> std::same_as<time_point>;
  e.advance(now);
};

/// A model's report on a slot, where the slice asks for it.
struct slot_state {
  static constexpr std::uint8_t fit = 0;    ///< It was computed.
  static constexpr std::uint8_t unfit = 1;  ///< Its input values cannot be computed.
  /// The run failed because of some slots, and it is not known whether this is one of them.
  static constexpr std::uint8_t unknown = 2;
};

/// The rows of a batch that a stage works on. Slot i of the slice lies at `base + (first + i) *
/// stride`, both for the stage's input and for its output.
struct slice {
  std::byte* input;          ///< Slot 0 at the boundary before the stage; device memory.
  std::byte* output;         ///< Slot 0 at the boundary after the stage; device memory.
  std::size_t input_stride;  ///< Bytes between slots; at least the bytes per request there.
  std::size_t output_stride;
  std::uint32_t first;     ///< First slot.
  std::uint32_t count;     ///< Slots; at least 1.
  std::uint32_t size = 0;  ///< Input size that all its slots are padded to, in units of the model;
                           ///< 0 means the largest. Models with a fixed input size ignore it.
  /// One byte per slot of the slice, in host memory that stays valid until the work on the stream
  /// is done; or null. If a model can tell that a slot's values, not the device, are the cause of a
  /// failure, it sets that byte to `slot_state::unfit` when it runs, instead of failing. That
  /// request then fails alone and is not retried. A slot marked `slot_state::unknown` fails as if
  /// the whole batch had failed. Other models may leave the bytes unchanged.
  std::uint8_t* unfit = nullptr;
  /// Becomes true once the result is no longer wanted because the work hangs; or null. It stays
  /// valid until the work on the stream is done. A model that is able to should then end the work
  /// early and fail the stream.
  const std::atomic<bool>* given_up = nullptr;
  /// The row is a sample that only shows whether the device works: a model that cannot compute it
  /// may compute another one.
  bool is_sample = false;
  /// All slots belong to one request: if some cannot be computed all are unfit, and none is run
  /// separately.
  bool is_whole = false;
};

namespace requirement {
template <class M>
concept tells_exits = requires(const M& m, std::size_t stage) {
  { m.has_exit(stage) } -> std::same_as<bool>;
};
}  // namespace requirement

/// A model of `stages()` stages run in order. Boundary 0 is its input, boundary i the output of
/// stage i − 1; `boundary_bytes(i)` is per request. `enqueue(stage, stream, slice)` puts the work
/// of one stage on a stream and returns at once; it may be called for different slices of one batch
/// in any order, but for one slot in the order of the stages, and never for one model by two
/// threads at once. Result of a slot: the same bits whatever other slots share the call is not
/// required; the stated tolerance is. Models: those in src/models, `profile_model`.
template <class M, class Stream>
concept staged_model = requires(const M& m, std::size_t boundary) {
  { m.name() } -> std::convertible_to<std::string_view>;
  { m.stages() } -> std::convertible_to<std::size_t>;
  { m.boundary_bytes(boundary) } -> std::convertible_to<std::size_t>;
} && requires(M& m, std::size_t stage, Stream& stream, const slice& s) {
  m.enqueue(stage, stream, s);
};

/// A staged model with intermediate results, for early exit and layer skip. Where
/// `has_exit(stage)`, `enqueue_exit(stage, stream, slice)` takes the stage's output as the slice's
/// input and computes rows in the form of the model's output: the result of a request that leaves
/// here, or the values that decide whether it goes on. Otherwise it behaves as `enqueue`.
template <class M, class Stream>
concept exiting_model = staged_model<M, Stream> && requirement::tells_exits<M> &&
                        requires(M& m, std::size_t stage, Stream& stream, const slice& s) {
                          m.enqueue_exit(stage, stream, s);
                        };

}  // namespace cohort::runtime
