// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend that runs models on an executor.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/engine/end_report.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/staged_model.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

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
/// A batch's rows on their way in and out, in the executor's host memory.
template <class Pinned>
struct pinned_rows {
  Pinned in, out;
  std::vector<std::span<std::byte>> outputs;  // Of the batch's requests.
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

/// Runs each batch as its model's stages on the stream of its device: copies the rows in, runs
/// every stage on the whole batch, copies the rows out. Requests must be `tensor_request`s whose
/// spans have the model's sizes. A device has two sets of buffers, so that a batch sent ahead waits
/// in the stream. With an executor that needs pinned memory, rows are gathered there first, and
/// handed to their requests on the executor's thread, before the batch is reported. Nothing
/// allocates but adding. Thread safety: all but `bind` on the loop's thread; see the `setup` of
/// `basic_engine::add_device` and `add_model`.
/// @tparam Model A staged model for the executor's streams, one instance for each device.
template <runtime::executor Executor, runtime::staged_model<typename Executor::stream> Model>
class staged_backend {
 public:
  explicit staged_backend(Executor& executor) : executor_{executor} {}

  template <class Engine>
  void bind(Engine& engine) noexcept {
    report_.bind(engine);
  }

  /// The device runs on `share` of the executor's compute.
  void add_device(device_id id, device_share share = {}) {
    if (id.index() >= lanes_.size()) lanes_.resize(id.index() + 1);
    lanes_[id.index()] = std::make_unique<lane>(executor_.make_stream(share));
    for (slot& s : lanes_[id.index()]->slots) {
      s.owner = this;
      s.device = id;
      s.invoke = [](runtime::completion& c, bool failed) noexcept {
        auto& self = static_cast<slot&>(c);
        const bool bad = failed || std::exchange(self.refused, false);
        if constexpr (is_pinned) {
          const std::byte* row = self.pinned.out.data();
          for (const std::span<std::byte> to : self.pinned.outputs) {
            if (!bad) std::memcpy(to.data(), row, to.size());
            row += to.size();
          }
        }
        self.owner->report_(self.device, bad);
      };
    }
  }

  /// The instance of a model on a device, for batches of at most `max_batch`.
  /// @throws config_error If the executor has no memory left for the rows.
  void add_model(model_id id, device_id device, std::uint32_t max_batch,
                 std::unique_ptr<Model> model) {
    lane& l = *lanes_[device.index()];
    std::size_t row = 0;
    for (std::size_t i = 0; i <= model->stages(); ++i)
      row = std::max(row, model->boundary_bytes(i));
    for (slot& s : l.slots) {
      for (auto& rows : s.rows) {
        if (rows.size() < row * max_batch) rows = executor_.allocate(row * max_batch);
      }
      if constexpr (is_pinned) {
        const std::size_t in = model->boundary_bytes(0) * max_batch;
        const std::size_t out = model->boundary_bytes(model->stages()) * max_batch;
        if (s.pinned.in.size() < in) s.pinned.in = executor_.allocate_pinned(in);
        if (s.pinned.out.size() < out) s.pinned.out = executor_.allocate_pinned(out);
        s.pinned.outputs.reserve(max_batch);
      }
    }
    if (id.index() >= l.models.size()) l.models.resize(id.index() + 1);
    l.models[id.index()] = std::move(model);
  }

  void launch(const deferred::batch& b) noexcept {
    lane& l = *lanes_[b.device.index()];
    slot& s = l.slots[l.next];
    l.next = (l.next + 1) % l.slots.size();
    try {
      run(l, s, b);
    } catch (const std::exception&) {
      s.refused = true;  // The model refused the work: the batch fails, the process goes on.
    }
    executor_.notify(l.stream, s);
  }

 private:
  static constexpr bool is_pinned = needs_pinned_memory<Executor>;

  struct slot : runtime::completion {
    staged_backend* owner = nullptr;
    device_id device;
    bool refused = false;
    std::array<typename Executor::buffer, 2> rows;  // Boundaries, in turns.
    [[no_unique_address]] typename detail::pinned_rows_of<Executor>::type pinned;
  };
  struct lane {
    explicit lane(typename Executor::stream s) : stream{std::move(s)} {}
    std::array<slot, deferred::rank::max_outstanding> slots;
    std::size_t next = 0;
    std::vector<std::unique_ptr<Model>> models;
    typename Executor::stream stream;  // Last: its destructor waits for work on the rest.
  };

  void run(lane& l, slot& s, const deferred::batch& b) {
    Model& model = *l.models[b.model.index()];
    copy_in(l, s, b, model.boundary_bytes(0));
    for (std::size_t i = 0; i < model.stages(); ++i) {
      model.enqueue(i, l.stream,
                    runtime::slice{.input = s.rows[i % 2].data(),
                                   .output = s.rows[(i + 1) % 2].data(),
                                   .input_stride = model.boundary_bytes(i),
                                   .output_stride = model.boundary_bytes(i + 1),
                                   .first = 0,
                                   .count = b.size()});
    }
    copy_out(l, s, b, model.boundary_bytes(model.stages()), s.rows[model.stages() % 2].data());
  }

  void copy_in(lane& l, slot& s, const deferred::batch& b, std::size_t bytes) {
    std::byte* row = s.rows[0].data();
    if constexpr (is_pinned) {
      std::byte* to = s.pinned.in.data();
      for (const request& r : b.requests) {
        std::memcpy(to, static_cast<const tensor_request&>(r).input.data(), bytes);
        to += bytes;
      }
      executor_.copy(
          l.stream,
          {.destination = row, .source = s.pinned.in.data(), .row_bytes = bytes * b.size()});
    } else {
      for (const request& r : b.requests) {
        const auto& t = static_cast<const tensor_request&>(r);
        executor_.copy(l.stream,
                       {.destination = row, .source = t.input.data(), .row_bytes = bytes});
        row += bytes;
      }
    }
  }
  void copy_out(lane& l, slot& s, const deferred::batch& b, std::size_t bytes,
                const std::byte* row) {
    if constexpr (is_pinned) {
      s.pinned.outputs.clear();
      for (const request& r : b.requests) {
        s.pinned.outputs.push_back(static_cast<const tensor_request&>(r).output.first(bytes));
      }
      executor_.copy(
          l.stream,
          {.destination = s.pinned.out.data(), .source = row, .row_bytes = bytes * b.size()});
    } else {
      for (const request& r : b.requests) {
        const auto& t = static_cast<const tensor_request&>(r);
        executor_.copy(l.stream,
                       {.destination = t.output.data(), .source = row, .row_bytes = bytes});
        row += bytes;
      }
    }
  }

  Executor& executor_;
  end_report report_;
  std::vector<std::unique_ptr<lane>> lanes_;
};

}  // namespace cohort::engine
