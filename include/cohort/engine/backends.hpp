// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backends over executors: `staged_backend` runs models, `profile_backend` takes their time.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/engine/loop.hpp>
#include <cohort/runtime/emulated.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/staged_model.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::engine {

/// A request with its data: one row in, one row out, in host memory of the caller's.
struct tensor_request : request {
  std::span<const std::byte> input;
  std::span<std::byte> output;
};

/// Where a backend reports the ends of its batches; `bind` it to the engine or loop.
class end_report {
 public:
  template <class Engine>
  void bind(Engine& engine) noexcept {
    engine_ = &engine;
    call_ = [](void* e, device_id d, bool failed) { static_cast<Engine*>(e)->complete(d, failed); };
  }
  void operator()(device_id d, bool failed) const noexcept { call_(engine_, d, failed); }

 private:
  void* engine_ = nullptr;
  void (*call_)(void*, device_id, bool) = nullptr;
};

/// Runs each batch as its model's stages on the stream of its device: copies the rows in, runs
/// every stage on the whole batch, copies the rows out. Requests must be `tensor_request`s whose
/// spans have the model's sizes. A device has two sets of buffers, so that a batch sent ahead waits
/// in the stream. Nothing allocates but adding. Thread safety: all but `bind` on the loop's
/// thread; see the `setup` of `basic_engine::add_device` and `add_model`.
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
        self.owner->report_(self.device, failed || std::exchange(self.refused, false));
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
  struct slot : runtime::completion {
    staged_backend* owner = nullptr;
    device_id device;
    bool refused = false;
    std::array<typename Executor::buffer, 2> rows;  // Boundaries, in turns.
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
    const std::size_t input_bytes = model.boundary_bytes(0);
    std::byte* row = s.rows[0].data();
    for (const request& r : b.requests) {
      const auto& t = static_cast<const tensor_request&>(r);
      executor_.copy(l.stream,
                     {.destination = row, .source = t.input.data(), .row_bytes = input_bytes});
      row += input_bytes;
    }
    for (std::size_t i = 0; i < model.stages(); ++i) {
      model.enqueue(i, l.stream,
                    runtime::slice{.input = s.rows[i % 2].data(),
                                   .output = s.rows[(i + 1) % 2].data(),
                                   .input_stride = model.boundary_bytes(i),
                                   .output_stride = model.boundary_bytes(i + 1),
                                   .first = 0,
                                   .count = b.size()});
    }
    const std::size_t output_bytes = model.boundary_bytes(model.stages());
    row = s.rows[model.stages() % 2].data();
    for (const request& r : b.requests) {
      const auto& t = static_cast<const tensor_request&>(r);
      executor_.copy(l.stream,
                     {.destination = t.output.data(), .source = row, .row_bytes = output_bytes});
      row += output_bytes;
    }
  }

  Executor& executor_;
  end_report report_;
  std::vector<std::unique_ptr<lane>> lanes_;
};

/// Takes the time that profiles say and computes nothing, on an emulated executor that the loop
/// drives. Thread safety: as `staged_backend`.
class profile_backend {
 public:
  template <class Engine>
  void bind(Engine& engine) noexcept {
    report_.bind(engine);
  }
  void add_device(device_id id) {
    if (id.index() >= lanes_.size()) lanes_.resize(id.index() + 1);
    lanes_[id.index()] = std::make_unique<lane>(executor_.make_stream());
    for (slot& s : lanes_[id.index()]->slots) {
      s.owner = this;
      s.device = id;
      s.invoke = [](runtime::completion& c, bool failed) noexcept {
        const auto& self = static_cast<slot&>(c);
        self.owner->report_(self.device, failed);
      };
    }
  }
  void add_model(model_id id, latency_curve latency) {
    if (id.index() >= models_.size()) models_.resize(id.index() + 1);
    models_[id.index()] = std::move(latency);
  }

  void launch(const deferred::batch& b) noexcept {
    lane& l = *lanes_[b.device.index()];
    executor_.busy(l.stream, (*models_[b.model.index()])(b.size()));
    executor_.notify(l.stream, l.slots[l.next]);
    l.next = (l.next + 1) % l.slots.size();
  }
  [[nodiscard]] time_point next_event() const noexcept { return executor_.next_event(); }
  void advance(time_point now) { executor_.advance(now); }

 private:
  struct slot : runtime::completion {
    profile_backend* owner = nullptr;
    device_id device;
  };
  struct lane {
    explicit lane(runtime::emulated_executor::stream s) : stream{std::move(s)} {}
    std::array<slot, deferred::rank::max_outstanding> slots;
    std::size_t next = 0;
    runtime::emulated_executor::stream stream;
  };

  runtime::emulated_executor executor_;
  end_report report_;
  std::vector<std::unique_ptr<lane>> lanes_;
  std::vector<std::optional<latency_curve>> models_;
};
static_assert(driven_backend<profile_backend>);

}  // namespace cohort::engine
