// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend that runs models as pipelines of stages, which requests enter and leave in between.
#pragma once

#include <cohort/batching/diversity.hpp>
#include <cohort/batching/observer.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/policy.hpp>
#include <cohort/batching/stage_driver.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/engine/end_report.hpp>
#include <cohort/engine/loop.hpp>
#include <cohort/engine/request_rows.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/staged_model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace cohort::engine {

/// A model as a pipeline.
/// @tparam Model A staged model.  @tparam Policy `staging_policy`.
template <class Model, class Policy, class Observer>
struct pipeline_model {
  /// Measurements of each of the model's stages.
  std::vector<std::vector<batching::stage_point>> stages{};
  /// Of the copies in and out together, and what else a row costs beside the policy's `hand_over`;
  /// empty: they are free. Where stages are short, plans without it make rows too small.
  std::vector<batching::stage_point> copies{};
  std::uint32_t batch_max = 1;  ///< Rows of a batch; at least the scheduler's largest.
  /// Largest request size of each bucket, ascending; empty: size does not matter. A row's requests
  /// are padded to that of their bucket, the `size` of the slices that the model is given. A
  /// request above the last one fails.
  std::vector<std::uint32_t> buckets{};
  batching::pipeline_options options{};  ///< `max_waiting` is set by the backend.
  /// One for each stage of each lane, lane by lane.
  std::vector<std::unique_ptr<Model>> instances{};
  /// Gives the policy over a profile of the model's stages and the two copies, which outlives it.
  std::function<Policy(const batching::stage_profile&)> policy{};
  Observer observer{};
  /// Early exit and layer skip, if the model is a `runtime::exiting_model`; empty: none.
  request_judge judge{};
};

/// Runs batches as pipelines: the scheduler chooses when a batch enters, the pipeline what happens
/// to it then. Its requests may join rows that run, be split from one another and leave early; each
/// is reported when it ends itself, and the batch with its last one. There is a pipeline for each
/// model on each device. On a device of capacity c up to c batches are in its pipelines, so that a
/// late one may be stretched into an early one; with capacity 1 it would wait until the early one
/// has ended.
/// Cancelled requests leave between stages. Works on the loop's thread, which completions wake.
/// Nothing allocates but adding. Thread safety: as `staged_backend`.
/// @tparam Model One type for all models, e.g. a base class.
template <runtime::executor Executor, runtime::staged_model<typename Executor::stream> Model,
          batching::staging_policy Policy = batching::diversity,
          batching::batch_observer Observer = batching::null_batch_observer>
class pipeline_backend {
 public:
  using model_type = pipeline_model<Model, Policy, Observer>;

  explicit pipeline_backend(Executor& executor) : executor_{&executor} {}
  pipeline_backend(const pipeline_backend&) = delete;
  pipeline_backend& operator=(const pipeline_backend&) = delete;

  template <class Engine>
  void bind(Engine& engine) noexcept {
    report_.bind(engine);
  }

  /// A device, with the capacity that the scheduler was told.
  void add_device(device_id id, std::uint32_t capacity = 1) {
    if (id.index() >= devices_.size()) devices_.resize(id.index() + 1);
    devices_[id.index()] = std::make_unique<lane>();
    devices_[id.index()]->entries.resize(capacity);
  }

  /// The pipeline of a model on a device.
  /// @throws config_error If something does not fit, or the executor lacks the memory.
  void add_model(model_id id, device_id device, model_type m) {
    lane& p = *devices_[device.index()];
    auto made = std::make_unique<unit>(*this, std::move(m), p);
    if (id.index() >= p.models.size()) p.models.resize(id.index() + 1);
    p.models[id.index()] = std::move(made);
    group_.reserve(std::max<std::size_t>(group_.capacity(), p.models[id.index()]->batch_max));
  }

  void launch(const deferred::batch& b) noexcept {
    lane& l = *devices_[b.device.index()];
    pipeline_entry& e = l.entries[b.entry];
    unit& u = *l.models[b.model.index()];
    const auto at = static_cast<std::uint32_t>((e.first + e.count) % e.left.size());
    e.left[at] = b.size();
    ++e.count;
    group_.clear();
    for (const request& r : b.requests) {
      const std::uint32_t bucket = u.bucket_of(r.size);
      if (bucket == u.profile.buckets()) {
        rows::end(report_, l.entries, b.at(), at, r, true);
        continue;
      }
      const auto& t = static_cast<const tensor_request&>(r);
      group_.push_back(
          {.tag = u.requests.add(t, b.at(), at), .arrival = r.arrival, .bucket = bucket});
    }
    [[maybe_unused]] const std::size_t taken = u.stages.on_arrival(group_, now_);
    COHORT_ASSERT(taken == group_.size());  // There is room for all that devices may have.
  }
  void cancel(const request& r) noexcept {
    for (const auto& p : devices_) {
      if (p == nullptr || r.model.index() >= p->models.size()) continue;
      if (p->models[r.model.index()] == nullptr) continue;
      unit& u = *p->models[r.model.index()];
      if (const auto tag = u.requests.find(r)) {
        u.stages.on_cancel(*tag, now_, u.driver);
        return;
      }
    }
  }

  [[nodiscard]] time_point next_event() const noexcept {
    time_point next = never;
    for (const auto& p : devices_) {
      if (p == nullptr) continue;
      for (const auto& u : p->models) {
        if (u != nullptr) next = std::min(next, u->stages.next_wake());
      }
    }
    return next;
  }
  void advance(time_point now) noexcept {
    now_ = now;
    for (const auto& p : devices_) {
      if (p == nullptr) continue;
      for (const auto& u : p->models) {
        if (u == nullptr) continue;
        u->driver.collect(u->stages, now);
        u->stages.advance(now, u->driver);
      }
    }
  }

  /// What the pipeline of a model has observed. Loop's thread, or after the engine.
  [[nodiscard]] Observer& observer(model_id id, device_id device = {}) noexcept {
    return devices_[device.index()]->models[id.index()]->stages.observer();
  }

 private:
  using rows = request_rows<Executor>;
  struct unit;
  struct lane {
    std::vector<pipeline_entry> entries;
    std::vector<std::unique_ptr<unit>> models;

    [[nodiscard]] std::uint32_t capacity() const noexcept {
      return static_cast<std::uint32_t>(entries.size());
    }
  };

  struct unit {
    unit(pipeline_backend& self, model_type m, lane& on)
        : batch_max{m.batch_max},
          buckets{std::move(m.buckets)},
          instances{std::move(m.instances)},
          profile{with_copies(m, count(buckets)), m.batch_max, count(buckets)},
          requests{*self.executor_,
                   self.report_,
                   on.entries,
                   first().boundary_bytes(0),
                   first().boundary_bytes(first().stages()),
                   on.capacity() * deferred::rank::entry_depth * m.batch_max,
                   std::move(m.judge)},
          driver{*self.executor_,
                 pointers(instances),
                 requests,
                 m.options.executors_per_set ? m.options.buffer_sets : 1,
                 m.options.buffer_sets,
                 m.batch_max,
                 buckets},
          stages{profile, with_room(m.options, on.capacity() * m.batch_max), m.policy(profile),
                 std::move(m.observer)} {
      expects(driver.stages() == profile.stages(),
              "pipeline_model: stages must be those of the model");
    }

    [[nodiscard]] std::uint32_t bucket_of(std::uint32_t size) const noexcept {
      const auto at = std::ranges::lower_bound(buckets, size);
      return static_cast<std::uint32_t>(at - buckets.begin());
    }
    static std::uint32_t count(const std::vector<std::uint32_t>& buckets) {
      return std::max(1U, static_cast<std::uint32_t>(buckets.size()));
    }
    static std::vector<std::vector<batching::stage_point>> with_copies(const model_type& m,
                                                                       std::uint32_t buckets) {
      std::vector<batching::stage_point> free;
      for (std::uint32_t k = 0; k < buckets; ++k) {
        free.push_back({.batch = m.batch_max, .bucket = k});
      }
      std::vector<std::vector<batching::stage_point>> out = m.stages;
      out.insert(out.begin(), m.copies.empty() ? free : m.copies);
      out.push_back(std::move(free));
      return out;
    }
    static batching::pipeline_options with_room(batching::pipeline_options o, std::uint32_t n) {
      o.max_waiting = static_cast<std::uint32_t>(deferred::rank::entry_depth) * n;
      return o;
    }
    static std::vector<Model*> pointers(const std::vector<std::unique_ptr<Model>>& from) {
      std::vector<Model*> to;
      for (const auto& m : from) to.push_back(m.get());
      return to;
    }
    [[nodiscard]] const Model& first() const {
      expects(!instances.empty(), "pipeline_model: instances must not be empty");
      return *instances.front();
    }

    std::uint32_t batch_max;
    std::vector<std::uint32_t> buckets;
    std::vector<std::unique_ptr<Model>> instances;
    batching::stage_profile profile;
    rows requests;
    batching::stage_driver<Executor, Model, rows> driver;
    batching::pipeline<Policy, Observer> stages;
  };
  Executor* executor_;
  request_report report_;
  std::vector<std::unique_ptr<lane>> devices_;
  std::vector<batching::staged_request> group_;
  time_point now_{};
};

}  // namespace cohort::engine
