// SPDX-License-Identifier: Apache-2.0
/// @file
/// The requests in one pipeline of an engine, with their rows and owners.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/stage_driver.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/tensor_request.hpp>
#include <cohort/runtime/executor.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::engine {

/// The entries of a device that runs pipelines: the batches sent to each, in order, and how many of
/// their requests have not ended. Thread safety: none.
class device_entries {
 public:
  /// @param report Must outlive it.
  explicit device_entries(const end_report& report) noexcept : report_{&report} {}
  void resize(std::uint32_t capacity) { entries_.resize(capacity); }
  void set_id(device_id id) noexcept { id_ = id; }
  [[nodiscard]] device_id id() const noexcept { return id_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept {
    return static_cast<std::uint32_t>(entries_.size());
  }

  /// Adds a batch of `requests`. @returns Its place in the entry.
  std::uint32_t add_batch(batch_ticket at, std::uint32_t requests) noexcept {
    entry_batches& e = entries_[at.entry];
    COHORT_ASSERT(e.count < e.left.size());
    const auto place = static_cast<std::uint32_t>((e.first + e.count) % e.left.size());
    e.numbers[place] = at.number;
    e.left[place] = requests;
    e.failures[place] = e.successes[place] = 0;
    ++e.count;
    return place;
  }
  /// Notes the end of a request of the batch in a place; the batch ends with its last request, and
  /// batches of an entry end in order. A batch failed if none of its requests succeeded and the
  /// device is to blame for one. @param r Null if it was abandoned.
  void end_request(std::uint32_t entry, std::uint32_t place, const request* r, bool failed,
                   bool is_to_blame = true) noexcept {
    entry_batches& e = entries_[entry];
    if (r != nullptr) report_->request_ended({id_, entry, e.numbers[place]}, *r, failed);
    if (!failed) ++e.successes[place];
    if (failed && is_to_blame) ++e.failures[place];
    --e.left[place];
    while (e.count > 0 && e.left[e.first] == 0) {
      const bool has_failed = e.successes[e.first] == 0 && e.failures[e.first] > 0;
      const std::uint64_t number = e.numbers[e.first];
      e.first = static_cast<std::uint32_t>((e.first + 1) % e.left.size());
      --e.count;
      report_->batch_ended({id_, entry, number}, has_failed);
    }
  }

 private:
  struct entry_batches {
    std::array<std::uint64_t, deferred::rank::entry_depth> numbers{};
    std::array<std::uint32_t, deferred::rank::entry_depth> left{};
    std::array<std::uint32_t, deferred::rank::entry_depth> successes{};
    std::array<std::uint32_t, deferred::rank::entry_depth> failures{};
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };

  const end_report* report_;
  device_id id_;
  std::vector<entry_batches> entries_;
};

/// Decides how a request continues after a stage of its model, from the result of the stage's exit:
/// a row in the form of the model's output. Called on the loop's thread, once for each request and
/// stage with an exit; must be quick. If it throws, the request fails.
using request_judge = std::function<batching::verdict(const tensor_request&, std::uint32_t stage,
                                                      std::span<const std::byte> result)>;

/// The code around the `stage_driver` of an engine. A request's tag is the index of its record.
/// Thread safety: the loop's thread, except `publish`.
template <runtime::executor Executor>
class request_rows {
 public:
  /// @param report Must outlive it.
  /// @param capacity Maximum number of requests at one time.
  request_rows(Executor& e, const end_report& report, std::size_t input_bytes,
               std::size_t output_bytes, std::uint32_t capacity, request_judge judge = {})
      : report_{&report},
        judge_{std::move(judge)},
        input_bytes_{input_bytes},
        output_bytes_{output_bytes},
        records_(capacity),
        staging_{e, input_bytes * capacity, output_bytes * capacity} {
    for (std::uint32_t i = capacity; i-- > 0;) free_.push_back(i);
  }

  /// Attaches it to this device, which runs its batches.
  void join(device_entries& device) noexcept { device_ = &device; }

  /// Adds a request of the batch in place `batch` of an entry. @returns Its tag.
  std::uint64_t add(const tensor_request& r, std::uint32_t entry, std::uint32_t batch) noexcept {
    const std::uint64_t tag = take({.of = &r, .entry = entry, .batch = batch});
    copy_rows(staging_.in() + tag * input_bytes_, input_bytes_, r);
    return tag;
  }
  /// Adds a row of zeros, in no batch, which calls `done` when it ends. @returns Its tag.
  std::uint64_t add_zeros(runtime::completion& done) noexcept {
    const std::uint64_t tag = take({.done = &done});
    std::memset(staging_.in() + tag * input_bytes_, 0, input_bytes_);
    return tag;
  }
  /// Stops all use and reports of a tag's request; its batch continues.
  void abandon(std::uint64_t tag) noexcept {
    records_[tag].of = nullptr;
    records_[tag].is_given_up = true;
  }
  /// Abandons rows of zeros, except for `done`; `cancel(tag)` ends each as soon as it can.
  template <class Cancel>
  void abandon_zeros(Cancel cancel) noexcept {
    for (std::size_t tag = 0; tag < records_.size(); ++tag) {
      record& r = records_[tag];
      if (r.done == nullptr || std::exchange(r.is_given_up, true)) continue;
      cancel(tag);
    }
  }
  [[nodiscard]] bool is_given_up(std::uint64_t tag) const noexcept {
    return records_[tag].is_given_up;
  }
  [[nodiscard]] std::optional<std::uint64_t> find(const request& r) const noexcept {
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (records_[i].of == &r) return i;
    }
    return std::nullopt;
  }

  // The host of the driver.
  [[nodiscard]] batching::staged_io io(std::uint64_t tag) {
    return {staging_.in() + tag * input_bytes_, staging_.out() + tag * output_bytes_};
  }
  void ended(const batching::staged_request& request, outcome how, time_point) {
    const record r = std::exchange(records_[request.tag], {});
    free_.push_back(static_cast<std::uint32_t>(request.tag));
    const bool failed = how == outcome::failed || r.is_unfit || r.is_unknown;
    if (r.done != nullptr) {
      // If only zeros cannot be computed the device works; for an abandoned row it is unknown.
      const bool is_uncomputed = how == outcome::cancelled && (r.is_unfit || r.is_unknown);
      return r.done->invoke(*r.done, how != outcome::completed && !is_uncomputed);
    }
    if (r.of != nullptr && r.is_unfit) r.of->is_unfit = true;
    if (r.of != nullptr && !failed && how == outcome::completed) {
      std::memcpy(r.of->output.data(), staging_.out() + request.tag * output_bytes_, output_bytes_);
    }
    device_->end_request(r.entry, r.batch, r.of, failed, !r.is_unfit && !r.is_unknown);
  }
  /// @param is_known If false, it is one of several rows, of which at least one is unfit.
  void unfit(std::uint64_t tag, bool is_known) noexcept {
    (is_known ? records_[tag].is_unfit : records_[tag].is_unknown) = true;
  }
  [[nodiscard]] bool judges(std::uint32_t) const noexcept { return judge_ != nullptr; }
  [[nodiscard]] batching::verdict judge(const batching::staged_request& r, std::uint32_t stage) {
    const record& asked = records_[r.tag];
    if (asked.of == nullptr) return batching::verdict::go_on;
    return judge_(*asked.of, stage, {io(r.tag).output, output_bytes_});
  }
  void publish(std::atomic<int>& state, int value) const noexcept {
    report_->publish(state, value);
  }
  void failure(std::string_view text) const noexcept { report_->failure(device_->id(), text); }

 private:
  struct record {
    const tensor_request* of = nullptr;
    runtime::completion* done = nullptr;
    std::uint32_t entry = 0;
    std::uint32_t batch = 0;
    bool is_unfit = false;
    bool is_unknown = false;
    bool is_given_up = false;
  };

  std::uint64_t take(const record& r) noexcept {
    COHORT_ASSERT(!free_.empty());
    const std::uint32_t i = free_.back();
    free_.pop_back();
    records_[i] = r;
    return i;
  }

  const end_report* report_;
  device_entries* device_ = nullptr;
  request_judge judge_;
  std::size_t input_bytes_;
  std::size_t output_bytes_;
  std::vector<record> records_;
  std::vector<std::uint32_t> free_;
  staging_rows<Executor> staging_;  // By tag.
};

}  // namespace cohort::engine
