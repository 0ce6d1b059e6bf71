// SPDX-License-Identifier: Apache-2.0
/// @file
/// The requests in one pipeline of an engine: where their rows are and whose they are.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/stage_driver.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/engine/end_report.hpp>
#include <cohort/engine/staged_backend.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::engine {

/// One entry of a device that runs pipelines: the batches it was sent, in order, and how many of
/// their requests have not ended.
struct pipeline_entry {
  std::array<std::uint32_t, deferred::rank::entry_depth> left{};
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// What becomes of a request after a stage of its model, by what the stage's exit has computed: a
/// row of the form of the model's output. Called on the loop's thread, once for each request and
/// stage with an exit; must be quick. What it throws fails the request.
using request_judge = std::function<batching::verdict(const tensor_request&, std::uint32_t stage,
                                                      std::span<const std::byte> result)>;

/// The program around the `stage_driver` of an engine. A request's tag is the index of its record.
/// Thread safety: the loop's thread, but for `publish`.
template <runtime::executor Executor>
class request_rows {
 public:
  /// @param capacity Requests at one time.
  request_rows(Executor& e, const request_report& report, std::vector<pipeline_entry>& entries,
               std::size_t input_bytes, std::size_t output_bytes, std::uint32_t capacity,
               request_judge judge = {})
      : report_{&report},
        entries_{&entries},
        judge_{std::move(judge)},
        input_bytes_{input_bytes},
        output_bytes_{output_bytes},
        records_(capacity) {
    for (std::uint32_t i = capacity; i-- > 0;) free_.push_back(i);
    if constexpr (is_pinned) {
      pinned_.in = e.allocate_pinned(input_bytes * capacity);
      pinned_.out = e.allocate_pinned(output_bytes * capacity);
    } else {
      static_cast<void>(e);
    }
  }

  /// A request of the batch in place `batch` of an entry's. @returns Its tag.
  std::uint64_t add(const tensor_request& r, device_entry at, std::uint32_t batch) noexcept {
    COHORT_ASSERT(!free_.empty());
    const std::uint32_t i = free_.back();
    free_.pop_back();
    records_[i] = {&r, at, batch};
    if constexpr (is_pinned) {
      std::memcpy(pinned_.in.data() + i * input_bytes_, r.input.data(), input_bytes_);
    }
    return i;
  }
  [[nodiscard]] std::optional<std::uint64_t> find(const request& r) const noexcept {
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (records_[i].of == &r) return i;
    }
    return std::nullopt;
  }

  // The host of the driver.
  [[nodiscard]] batching::staged_io io(std::uint64_t tag) {
    if constexpr (is_pinned) {
      return {pinned_.in.data() + tag * input_bytes_, pinned_.out.data() + tag * output_bytes_};
    } else {
      return {records_[tag].of->input.data(), records_[tag].of->output.data()};
    }
  }
  void ended(const batching::staged_request& request, outcome how, time_point) {
    const record r = records_[request.tag];
    records_[request.tag] = {};
    free_.push_back(static_cast<std::uint32_t>(request.tag));
    if constexpr (is_pinned) {
      if (how == outcome::completed) {
        std::memcpy(r.of->output.data(), pinned_.out.data() + request.tag * output_bytes_,
                    output_bytes_);
      }
    }
    end(*report_, *entries_, r.at, r.batch, *r.of, how == outcome::failed);
  }
  [[nodiscard]] bool judges(std::uint32_t) const noexcept { return judge_ != nullptr; }
  [[nodiscard]] batching::verdict judge(const batching::staged_request& r, std::uint32_t stage) {
    return judge_(*records_[r.tag].of, stage, {io(r.tag).output, output_bytes_});
  }
  void publish(std::atomic<int>& state, int value) const noexcept {
    report_->publish(state, value);
  }

  /// A request has ended, and its batch with its last one; batches of an entry end in order.
  static void end(const request_report& report, std::vector<pipeline_entry>& entries,
                  device_entry at, std::uint32_t batch, const request& r, bool failed) noexcept {
    report.request_ended(at, r, failed);
    pipeline_entry& e = entries[at.entry];
    --e.left[batch];
    while (e.count > 0 && e.left[e.first] == 0) {
      e.first = (e.first + 1) % deferred::rank::entry_depth;
      --e.count;
      report.batch_ended(at);
    }
  }

 private:
  static constexpr bool is_pinned = needs_pinned_memory<Executor>;
  struct record {
    const tensor_request* of = nullptr;
    device_entry at{};
    std::uint32_t batch = 0;
  };

  const request_report* report_;
  std::vector<pipeline_entry>* entries_;
  request_judge judge_;
  std::size_t input_bytes_;
  std::size_t output_bytes_;
  std::vector<record> records_;
  std::vector<std::uint32_t> free_;
  [[no_unique_address]] typename detail::pinned_rows_of<Executor>::type pinned_;
};

}  // namespace cohort::engine
