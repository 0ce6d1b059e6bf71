// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a model as a pipeline of stages, which requests enter and leave between stages: `staged`.
#pragma once

#include <cohort/batching/diversity.hpp>
#include <cohort/batching/observer.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/policy.hpp>
#include <cohort/batching/stage_driver.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/request_rows.hpp>
#include <cohort/engine/tensor_request.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::engine {

/// A model as a pipeline.
/// @tparam Model A staged model.  @tparam Policy `staging_policy`.
template <class Model, class Policy, class Observer>
struct pipeline_model {
  /// Measurements of each of the model's stages.
  std::vector<std::vector<batching::stage_point>> stages{};
  /// Measurements of both copies together, and other costs of a row beside the policy's
  /// `hand_over`; empty: they are free. If stages are short, plans without it make rows too small.
  std::vector<batching::stage_point> copies{};
  batching::copy_rule copy = batching::copy_rule::apart;
  std::uint32_t batch_max = 1;  ///< Maximum rows of a batch; at least the scheduler's largest.
  /// Largest request size of each bucket, ascending; empty: size does not matter. A row's requests
  /// are padded to the size of their bucket, which is the `size` of the slices passed to the model.
  /// A request above the last one fails.
  std::vector<std::uint32_t> buckets{};
  batching::pipeline_options options{};  ///< `max_waiting` is set by the backend.
  /// One for each stage of each lane, lane by lane.
  std::vector<std::unique_ptr<Model>> instances{};
  /// Makes the policy from a profile of the model's stages and the two copies, which outlives it.
  std::function<Policy(const batching::stage_profile&)> policy{};
  Observer observer{};
  /// Early exit and layer skip, if the model is a `runtime::exiting_model`; empty: none.
  request_judge judge{};
};

namespace detail {

/// The entries of a device: streams belong to the stages of models.
class pipeline_lane {
 public:
  template <class Executor>
  pipeline_lane(Executor& /*e*/, const device_spec& spec, const end_report& report)
      : entries{report} {
    expects(spec.capacity > 0, "staged: the capacity of a device must be at least 1");
    entries.resize(spec.capacity);
  }
  void set_id(device_id id) noexcept { entries.set_id(id); }

  device_entries entries;
};

/// A model on a device.
template <runtime::executor Executor, class Model, class Policy, class Observer>
class pipeline_instance {
 public:
  using model_type = pipeline_model<Model, Policy, Observer>;

  /// @throws config_error If sizes do not fit, or the executor lacks the memory.
  pipeline_instance(Executor& e, model_type m, const device_spec& on, const end_report& report)
      : capacity_{on.capacity},
        buckets_{std::move(m.buckets)},
        instances_{std::move(m.instances)},
        profile_{with_copies(m, count(buckets_)), m.batch_max, count(buckets_)},
        // One more than batches need, for warming up.
        requests_{e,
                  report,
                  first().boundary_bytes(0),
                  first().boundary_bytes(first().stages()),
                  most_requests(m.batch_max) + 1,
                  std::move(m.judge)},
        driver_{e,
                pointers(instances_),
                requests_,
                m.options.executors_per_set ? m.options.buffer_sets : 1,
                m.options.buffer_sets,
                m.batch_max,
                buckets_,
                on.share,
                m.copy},
        stages_{profile_, with_room(m.options, most_requests(m.batch_max) + 1), m.policy(profile_),
                std::move(m.observer)} {
    expects(driver_.stages() == profile_.stages(),
            "pipeline_model: stages must be those of the model");
    group_.reserve(m.batch_max);
  }

  /// @throws config_error If the device has a larger capacity than the model was prepared for.
  void join(pipeline_lane& l) {
    expects(l.entries.capacity() <= capacity_,
            "pipeline_model: capacity must be at least that of its device");
    requests_.join(l.entries);
  }

  void launch(pipeline_lane& l, const deferred::batch& b, time_point now) noexcept {
    const std::uint32_t at = l.entries.add_batch(b.at(), b.size());
    group_.clear();
    for (const request& r : b.requests) {
      const std::uint32_t bucket = bucket_of(r.size);
      if (bucket == profile_.buckets()) {
        r.is_unfit = true;  // It is too large.
        l.entries.end_request(b.entry, at, &r, true, false);
        continue;
      }
      const auto& t = static_cast<const tensor_request&>(r);
      group_.push_back(
          {.tag = requests_.add(t, b.entry, at), .arrival = r.arrival, .bucket = bucket});
    }
    [[maybe_unused]] const std::size_t taken = stages_.on_arrival(group_, now);
    COHORT_ASSERT(taken == group_.size());  // There is room for all that the device may have.
  }
  /// @returns Whether the request was here.
  bool cancel(const request& r, time_point now) noexcept {
    const std::optional<std::uint64_t> tag = requests_.find(r);
    if (tag) stages_.on_cancel(*tag, now, driver_);
    return tag.has_value();
  }
  /// Releases the memory of the batch's requests, which leave when they can.
  bool abandon(pipeline_lane& /*l*/, const deferred::batch& b, time_point now) noexcept {
    for (const request& r : b.requests) {
      const std::optional<std::uint64_t> tag = requests_.find(r);
      if (!tag) continue;
      requests_.abandon(*tag);
      stages_.on_cancel(*tag, now, driver_);
      r.was_behind = !requests_.is_given_up(*tag);  // It left at once.
    }
    give_up();
    return true;
  }
  /// Runs one row of zeros, of the largest size, like any other; then calls `done`. One at a time.
  void warm_up(pipeline_lane& /*l*/, runtime::completion& done, time_point now) {
    group_.assign(
        1, {.tag = requests_.add_zeros(done), .arrival = now, .bucket = profile_.buckets() - 1});
    stages_.on_arrival(group_, now);
  }
  /// Ends that row before its next stage, and within the present one if the model can.
  void abandon_warm_up(time_point now) noexcept {
    requests_.abandon_zeros([&](std::uint64_t tag) { stages_.on_cancel(tag, now, driver_); });
    give_up();
  }

  [[nodiscard]] time_point next_wake() const noexcept { return stages_.next_wake(); }
  void advance(time_point now) noexcept {
    driver_.collect(stages_, now);
    stages_.advance(now, driver_);
  }
  [[nodiscard]] Observer& observer() noexcept { return stages_.observer(); }

 private:
  using rows = request_rows<Executor>;

  void give_up() noexcept {
    driver_.give_up([this](std::uint64_t tag) { return !requests_.is_given_up(tag); });
  }

  [[nodiscard]] std::uint32_t most_requests(std::uint32_t batch_max) const noexcept {
    return capacity_ * deferred::rank::entry_depth * batch_max;
  }
  [[nodiscard]] std::uint32_t bucket_of(std::uint32_t size) const noexcept {
    const auto at = std::ranges::lower_bound(buckets_, size);
    return static_cast<std::uint32_t>(at - buckets_.begin());
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
    if (m.copy == batching::copy_rule::together) {
      if (!out.empty()) add_copies(m.copies, out.front());
      return out;
    }
    out.insert(out.begin(), m.copies.empty() ? free : m.copies);
    out.push_back(std::move(free));
    return out;
  }
  /// Adds to each point the copy time of the next larger batch of its bucket.
  static void add_copies(const std::vector<batching::stage_point>& copies,
                         std::vector<batching::stage_point>& to) {
    for (batching::stage_point& p : to) {
      const batching::stage_point* next = nullptr;
      const batching::stage_point* largest = nullptr;
      for (const batching::stage_point& c : copies) {
        if (c.bucket != p.bucket) continue;
        if (largest == nullptr || c.batch > largest->batch) largest = &c;
        if (c.batch >= p.batch && (next == nullptr || c.batch < next->batch)) next = &c;
      }
      if (next == nullptr) next = largest;
      if (next != nullptr) p.time += next->time;
    }
  }
  static batching::pipeline_options with_room(batching::pipeline_options o, std::uint32_t n) {
    o.max_waiting = n;
    return o;
  }
  static std::vector<Model*> pointers(const std::vector<std::unique_ptr<Model>>& from) {
    std::vector<Model*> to;
    for (const auto& m : from) to.push_back(m.get());
    return to;
  }
  [[nodiscard]] const Model& first() const {
    expects(!instances_.empty(), "pipeline_model: instances must not be empty");
    return *instances_.front();
  }

  std::uint32_t capacity_;
  std::vector<std::uint32_t> buckets_;
  std::vector<std::unique_ptr<Model>> instances_;
  batching::stage_profile profile_;
  rows requests_;
  batching::stage_driver<Executor, Model, rows> driver_;
  batching::pipeline<Policy, Observer> stages_;
  std::vector<batching::staged_request> group_;
};

}  // namespace detail

/// Runs batches as pipelines: the scheduler chooses when a batch enters, and the pipeline how it
/// continues. Its requests may join running rows, be split from one another and leave early; each
/// is reported when it ends, and the batch with its last one. There is a pipeline for each model on
/// each device. On a device of capacity c up to c batches are in its pipelines, so that a late one
/// may be stretched into an early one; with capacity 1 it waits until the early one has ended.
/// Cancelled requests leave between stages. Works on the loop's thread, which completions wake. A
/// pipeline of `executor_backend`.
template <batching::staging_policy Policy = batching::diversity,
          batching::batch_observer Observer = batching::null_batch_observer>
struct staged {
  static constexpr bool is_driven = true;
  template <class Model>
  using model = pipeline_model<Model, Policy, Observer>;
  template <class Executor>
  using lane = detail::pipeline_lane;
  template <class Executor, class Model>
  using instance = detail::pipeline_instance<Executor, Model, Policy, Observer>;
};

}  // namespace cohort::engine
