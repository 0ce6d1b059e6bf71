// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend that runs models on an executor.
#pragma once

#include <cohort/core/assert.hpp>
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
/// spans have the model's sizes. A model on a device has two sets of buffers, so that a batch sent
/// ahead waits in the stream. With an executor that needs pinned memory, rows are gathered there
/// first, and handed to their requests on the executor's thread, before the batch is reported.
/// Nothing allocates but preparing and adding. What takes long can be prepared on any thread and
/// added later, while others are served. Thread safety: `prepare_*` from any thread; all else but
/// `bind` on the loop's thread; see the `setup` of `basic_engine::add_device` and `add_model`.
/// @tparam Model A staged model for the executor's streams, one instance for each device.
template <runtime::executor Executor, runtime::staged_model<typename Executor::stream> Model>
class staged_backend {
  struct lane;
  struct instance;

 public:
  using prepared_device = std::unique_ptr<lane>;
  using prepared_model = std::unique_ptr<instance>;

  /// @param executors One for each GPU; they outlive the backend. At least one.
  explicit staged_backend(std::vector<Executor*> executors) : executors_{std::move(executors)} {}
  explicit staged_backend(Executor& executor) : executors_{&executor} {}

  template <class Engine>
  void bind(Engine& engine) noexcept {
    report_.bind(engine);
  }

  /// A stream on `share` of a GPU's compute. @throws config_error As the executor.
  [[nodiscard]] prepared_device prepare_device(device_share share = {}, device_id gpu = {}) {
    Executor& e = *executors_[gpu.index()];
    auto made = std::make_unique<lane>(e, e.make_stream(share));
    for (slot& s : made->slots) {
      s.owner = this;
      s.invoke = [](runtime::completion& c, bool failed) noexcept {
        auto& self = static_cast<slot&>(c);
        const bool bad = failed || std::exchange(self.refused, false);
        if constexpr (is_pinned) {
          const std::byte* row = self.rows->pinned.out.data();
          for (const std::span<std::byte> to : self.rows->pinned.outputs) {
            if (!bad) std::memcpy(to.data(), row, to.size());
            row += to.size();
          }
        }
        self.owner->report_(self.device, bad);
      };
    }
    return made;
  }
  void add_device(device_id id, prepared_device made) {
    if (id.index() >= lanes_.size()) lanes_.resize(id.index() + 1);
    for (slot& s : made->slots) s.device = id;
    lanes_[id.index()] = std::move(made);
  }
  /// The device runs on `share` of the first GPU's compute.
  void add_device(device_id id, device_share share = {}) { add_device(id, prepare_device(share)); }
  /// Takes away a device whose last batch was reported. To destroy it waits for its stream.
  [[nodiscard]] prepared_device take_device(device_id id) noexcept {
    return std::move(lanes_[id.index()]);
  }

  /// A model and its rows on a GPU, for batches of at most `max_batch`.
  /// @throws config_error If the executor has no memory left for the rows.
  [[nodiscard]] prepared_model prepare_model(std::uint32_t max_batch, std::unique_ptr<Model> model,
                                             device_id gpu = {}) {
    Executor& e = *executors_[gpu.index()];
    auto made = std::make_unique<instance>();
    std::size_t row = 0;
    for (std::size_t i = 0; i <= model->stages(); ++i)
      row = std::max(row, model->boundary_bytes(i));
    for (batch_rows& set : made->sets) {
      for (auto& rows : set.rows) rows = e.allocate(row * max_batch);
      if constexpr (is_pinned) {
        set.pinned.in = e.allocate_pinned(model->boundary_bytes(0) * max_batch);
        set.pinned.out = e.allocate_pinned(model->boundary_bytes(model->stages()) * max_batch);
        set.pinned.outputs.reserve(max_batch);
      }
    }
    made->zeros.resize(model->boundary_bytes(0));
    made->model = std::move(model);
    return made;
  }
  void add_model(model_id id, device_id device, prepared_model made) {
    lane& l = *lanes_[device.index()];
    if (id.index() >= l.models.size()) l.models.resize(id.index() + 1);
    l.models[id.index()] = std::move(made);
  }
  /// The instance of a model on a device of the first GPU; as `prepare_model`.
  void add_model(model_id id, device_id device, std::uint32_t max_batch,
                 std::unique_ptr<Model> model) {
    add_model(id, device, prepare_model(max_batch, std::move(model)));
  }
  /// Takes away a model on a device, whose last batch was reported.
  [[nodiscard]] prepared_model take_model(model_id id, device_id device) noexcept {
    return std::move(lanes_[device.index()]->models[id.index()]);
  }

  /// Runs one row of zeros, behind what the device has, then calls `done`.
  void warm_up(model_id id, device_id device, runtime::completion& done) {
    lane& l = *lanes_[device.index()];
    instance& x = *l.models[id.index()];
    batch_rows& set = x.sets[0];
    const std::byte* from = x.zeros.data();
    if constexpr (is_pinned) {
      std::memcpy(set.pinned.in.data(), from, x.zeros.size());
      from = set.pinned.in.data();
    }
    try {
      l.executor.copy(
          l.stream,
          {.destination = set.rows[0].data(), .source = from, .row_bytes = x.zeros.size()});
      run_stages(l, *x.model, set, 1);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
      // It refused this row: if it refuses requests' rows too, their batches will tell.
    }
    l.executor.notify(l.stream, done);
  }

  void launch(const deferred::batch& b) noexcept {
    COHORT_ASSERT(b.entry == 0);
    lane& l = *lanes_[b.device.index()];
    slot& s = l.slots[l.next];
    instance& x = *l.models[b.model.index()];
    s.rows = &x.sets[l.next];
    l.next = (l.next + 1) % l.slots.size();
    try {
      copy_in(l, *s.rows, b, x.model->boundary_bytes(0));
      run_stages(l, *x.model, *s.rows, b.size());
      copy_out(l, *s.rows, b, x.model->boundary_bytes(x.model->stages()),
               s.rows->rows[x.model->stages() % 2].data());
    } catch (const std::exception&) {
      s.refused = true;  // The model refused the work: the batch fails, the process goes on.
    }
    l.executor.notify(l.stream, s);
  }

 private:
  static constexpr bool is_pinned = needs_pinned_memory<Executor>;
  static constexpr std::size_t depth = deferred::rank::entry_depth;

  struct batch_rows {
    std::array<typename Executor::buffer, 2> rows;  // Boundaries, in turns.
    [[no_unique_address]] typename detail::pinned_rows_of<Executor>::type pinned;
  };
  struct instance {
    std::unique_ptr<Model> model;
    std::array<batch_rows, depth> sets;  // By slot.
    std::vector<std::byte> zeros;        // An input to warm up with.
  };
  struct slot : runtime::completion {
    staged_backend* owner = nullptr;
    device_id device;
    bool refused = false;
    batch_rows* rows = nullptr;  // Of the batch at work.
  };
  struct lane {
    lane(Executor& e, typename Executor::stream s) : executor{e}, stream{std::move(s)} {}
    Executor& executor;
    std::array<slot, depth> slots;
    std::size_t next = 0;
    std::vector<std::unique_ptr<instance>> models;
    typename Executor::stream stream;  // Last: its destructor waits for work on the rest.
  };

  static void run_stages(lane& l, Model& model, batch_rows& set, std::uint32_t count) {
    for (std::size_t i = 0; i < model.stages(); ++i) {
      model.enqueue(i, l.stream,
                    runtime::slice{.input = set.rows[i % 2].data(),
                                   .output = set.rows[(i + 1) % 2].data(),
                                   .input_stride = model.boundary_bytes(i),
                                   .output_stride = model.boundary_bytes(i + 1),
                                   .first = 0,
                                   .count = count});
    }
  }

  static void copy_in(lane& l, batch_rows& s, const deferred::batch& b, std::size_t bytes) {
    std::byte* row = s.rows[0].data();
    if constexpr (is_pinned) {
      std::byte* to = s.pinned.in.data();
      for (const request& r : b.requests) {
        std::memcpy(to, static_cast<const tensor_request&>(r).input.data(), bytes);
        to += bytes;
      }
      l.executor.copy(
          l.stream,
          {.destination = row, .source = s.pinned.in.data(), .row_bytes = bytes * b.size()});
    } else {
      for (const request& r : b.requests) {
        const auto& t = static_cast<const tensor_request&>(r);
        l.executor.copy(l.stream,
                        {.destination = row, .source = t.input.data(), .row_bytes = bytes});
        row += bytes;
      }
    }
  }
  static void copy_out(lane& l, batch_rows& s, const deferred::batch& b, std::size_t bytes,
                       const std::byte* row) {
    if constexpr (is_pinned) {
      s.pinned.outputs.clear();
      for (const request& r : b.requests) {
        s.pinned.outputs.push_back(static_cast<const tensor_request&>(r).output.first(bytes));
      }
      l.executor.copy(
          l.stream,
          {.destination = s.pinned.out.data(), .source = row, .row_bytes = bytes * b.size()});
    } else {
      for (const request& r : b.requests) {
        const auto& t = static_cast<const tensor_request&>(r);
        l.executor.copy(l.stream,
                        {.destination = t.output.data(), .source = row, .row_bytes = bytes});
        row += bytes;
      }
    }
  }

  std::vector<Executor*> executors_;
  end_report report_;
  std::vector<std::unique_ptr<lane>> lanes_;
};

}  // namespace cohort::engine
