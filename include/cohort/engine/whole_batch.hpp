// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs each batch through all stages of its model at once: `whole_batch`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/tensor_request.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/thread_load.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::engine {

/// The meaning of request sizes (`request::size`) for a model that runs whole batches.
enum class row_sizes : std::uint8_t {
  one,     ///< None: slices have size 0, the largest.
  padded,  ///< A batch is one slice, with the size of its largest request.
  equal,   ///< A batch is one slice for each size in it: rows must not be padded.
};

/// A model that runs whole batches, on one device.
template <class Model>
struct whole_batch_model {
  std::uint32_t batch_max = 1;  ///< Maximum rows of a batch; at least the scheduler's largest.
  row_sizes sizes = row_sizes::one;
  std::unique_ptr<Model> instance{};
};

/// Runs each batch as its model's stages on the stream of its device: copies the rows in, runs
/// every stage on the whole batch, copies the rows out. The stream runs one batch after the other,
/// so devices have capacity 1. A model on a device has two sets of buffers, so that a batch sent
/// ahead waits in the stream. Rows are gathered in host memory when the batch is launched, and
/// passed to their requests on the executor's thread before the batch is reported, unless it was
/// abandoned. If buffers are host memory (`has_host_buffers`) rows are gathered in the first buffer
/// and read from the last, without copies; a batch above 256 KiB is then gathered on its stream, so
/// that the loop can continue. A request of several rows is its own batch, one slice that is
/// computed as a whole or not at all. A pipeline of `executor_backend`.
struct whole_batch {
  static constexpr bool is_driven = false;
  template <class Model>
  using model = whole_batch_model<Model>;
  template <runtime::executor Executor>
  class lane;
  template <runtime::executor Executor, class Model>
  class instance;

 private:
  static constexpr std::size_t depth = deferred::rank::entry_depth;
  static constexpr std::size_t long_copy = std::size_t{256} << 10U;

  /// A batch's rows: buffers of boundaries, used alternately, and staging for input and output.
  template <class Executor>
  struct batch_rows {
    std::array<typename Executor::buffer, 2> rows;
    staging_rows<Executor> staging;  // None if the executor has host buffers.
    std::byte* in = nullptr;         // Where the host writes inputs, in it or in `rows`,
    std::byte* out = nullptr;        // and reads outputs.
    std::vector<const tensor_request*> requests;  // In the order of the rows: each has one, or one
                                                  // request has all.
    std::vector<std::span<std::byte>> outputs;    // Their outputs.
    std::vector<std::uint8_t> unfit;              // By row: values that cannot be computed.
    std::size_t output_bytes = 0;                 // Bytes of one row.

    [[nodiscard]] bool is_one_request() const noexcept { return requests.size() == 1; }
    /// State of request i: if it has all rows, unfit if one of them is.
    [[nodiscard]] std::uint8_t state_of(std::size_t i) const noexcept {
      if (!is_one_request()) return unfit[i];
      std::uint8_t state = runtime::slot_state::fit;
      for (const std::uint8_t x : unfit) {
        if (x == runtime::slot_state::unfit) return x;
        if (x != runtime::slot_state::fit) state = x;
      }
      return state;
    }
  };
};

/// The stream of a device, and the batches on it.
template <runtime::executor Executor>
class whole_batch::lane {
 public:
  /// @param report Must outlive it.
  /// @throws config_error If the capacity is not 1, and as the executor.
  lane(Executor& e, const device_spec& spec, const end_report& report)
      : executor_{&e}, report_{&report}, stream_{e.make_stream(spec.share)} {
    expects(spec.capacity == 1, "whole_batch: the capacity of a device must be 1");
    for (slot& s : slots_) {
      s.owner = this;
      s.invoke = [](runtime::completion& c, bool failed) noexcept {
        auto& self = static_cast<slot&>(c);
        const bool bad = failed || std::exchange(self.refused, false);
        if (failed && c.error != nullptr) self.owner->report_->failure(self.owner->id_, c.error);
        auto expected = holder::device;
        const bool is_wanted = self.held_by.compare_exchange_strong(expected, holder::outcome);
        if (is_wanted && !bad) self.owner->hand_over(*self.rows, self.at);
        self.owner->report_->batch_ended(self.at, bad);
      };
    }
  }
  lane(const lane&) = delete;
  lane& operator=(const lane&) = delete;

  void set_id(device_id id) noexcept { id_ = id; }
  /// Load of the stream's thread. Any thread.
  [[nodiscard]] runtime::thread_load load() const noexcept
    requires requires(const typename Executor::stream& s) { s.thread_id(); }
  {
    return runtime::load_of_thread(stream_.thread_id());
  }

 private:
  template <runtime::executor, class>
  friend class whole_batch::instance;
  /// The user of the memory of a batch's requests: none once it is abandoned. `gathering`: the
  /// device is reading it.
  enum class holder : std::uint8_t { device, gathering, outcome, nobody };
  struct slot : runtime::completion {
    lane* owner = nullptr;
    const deferred::batch* batch = nullptr;
    std::atomic<holder> held_by{holder::nobody};
    std::atomic<bool> given_up{false};
    bool refused = false;
    batch_ticket at;
    batch_rows<Executor>* rows = nullptr;  // Rows of the running batch.
  };

  /// Passes results to their requests. Requests without one end, mostly through their own fault.
  void hand_over(const batch_rows<Executor>& of, batch_ticket at) const noexcept {
    const std::byte* row = of.out;
    for (std::size_t i = 0; i < of.outputs.size(); ++i, row += of.output_bytes) {
      const std::uint8_t state = of.state_of(i);
      if (state == runtime::slot_state::fit) {
        std::memcpy(of.outputs[i].data(), row, of.outputs[i].size());
      } else {
        of.requests[i]->is_unfit = state == runtime::slot_state::unfit;
        report_->request_ended(at, *of.requests[i], true);
      }
    }
  }

  Executor* executor_;
  const end_report* report_;
  device_id id_;
  std::array<slot, depth> slots_;
  std::size_t next_ = 0;
  typename Executor::stream stream_;  // Last: its destructor waits for work on the others.
};

/// A model on a device.
template <runtime::executor Executor, class Model>
class whole_batch::instance {
 public:
  /// @throws config_error If the executor has no memory left for the rows.
  instance(Executor& e, model<Model> m, const device_spec& /*on*/, const end_report& /*report*/)
      : model_{std::move(m.instance)}, sizes_{m.sizes}, zeros_{e, input_bytes(), 1} {
    std::size_t row = 0;
    for (std::size_t i = 0; i <= model_->stages(); ++i) {
      row = std::max(row, model_->boundary_bytes(i));
    }
    for (batch_rows<Executor>& set : sets_) {
      for (auto& rows : set.rows) rows = e.allocate(row * m.batch_max);
      if constexpr (has_host_buffers<Executor>) {
        set.in = set.rows[0].data();
        set.out = last_rows(set);
      } else {
        set.staging = {e, input_bytes() * m.batch_max, output_bytes() * m.batch_max};
        set.in = set.staging.in();
        set.out = set.staging.out();
      }
      set.output_bytes = output_bytes();
      set.requests.reserve(m.batch_max);
      set.outputs.reserve(m.batch_max);
      set.unfit.reserve(m.batch_max);
    }
    std::memset(zeros_.in(), 0, input_bytes());
  }

  void join(lane<Executor>& /*l*/) noexcept {}

  void launch(lane<Executor>& l, const deferred::batch& b, time_point /*now*/) noexcept {
    COHORT_ASSERT(b.entry == 0);
    auto& s = l.slots_[l.next_];
    s.rows = &sets_[l.next_];
    s.batch = &b;
    s.at = b.at();
    s.held_by.store(lane<Executor>::holder::device, std::memory_order_relaxed);
    s.given_up.store(false, std::memory_order_relaxed);
    l.next_ = (l.next_ + 1) % depth;
    try {
      arrange(*s.rows, b);
      copy_in(l, s);
      run_stages(l, s);
      copy_out(l, *s.rows);
    } catch (const std::exception& e) {
      s.refused = true;  // The model refused the work: only the batch fails.
      l.report_->failure(l.id_, e.what());
    } catch (...) {
      s.refused = true;
      l.report_->failure(l.id_, "the model threw what is not a std::exception");
    }
    l.executor_->notify(l.stream_, s);
  }

  /// Releases the memory of the batch's requests, and asks the model to end it.
  /// @returns False if its end is on its way.
  bool abandon(lane<Executor>& l, const deferred::batch& b, time_point /*now*/) noexcept {
    using holder = typename lane<Executor>::holder;
    // Also compares the number: an earlier batch may have had this address.
    const auto s = std::ranges::find_if(
        l.slots_, [&](const auto& x) { return x.batch == &b && x.at.number == b.number; });
    if (s == l.slots_.end()) return false;
    for (auto is = holder::device; !s->held_by.compare_exchange_strong(is, holder::nobody);) {
      if (is != holder::gathering) return false;
      is = holder::device;  // Only briefly.
      std::this_thread::yield();
    }
    s->given_up.store(true);
    if constexpr (requires { model_->interrupt(); }) model_->interrupt();
    return true;
  }

  /// Runs one row of zeros, behind the device's present work, then calls `done`.
  void warm_up(lane<Executor>& l, runtime::completion& done, time_point /*now*/) {
    batch_rows<Executor>& set = sets_[0];
    warm_up_given_up_.store(false);
    try {
      l.executor_->copy(
          l.stream_,
          {.destination = set.rows[0].data(), .source = zeros_.in(), .row_bytes = input_bytes()});
      for (std::size_t i = 0; i < model_->stages(); ++i) {
        runtime::slice sample = slice_of(set, i, 0, 1, 0);
        sample.is_sample = true;
        sample.given_up = &warm_up_given_up_;
        model_->enqueue(i, l.stream_, sample);
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch)
      // If the model also refuses requests' rows, their batches will report it.
    }
    l.executor_->notify(l.stream_, done);
  }
  /// Asks the model to end the running row.
  void abandon_warm_up(time_point /*now*/) noexcept {
    warm_up_given_up_.store(true);
    if constexpr (requires { model_->interrupt(); }) model_->interrupt();
  }

 private:
  using rows_type = batch_rows<Executor>;

  [[nodiscard]] std::size_t input_bytes() const { return model_->boundary_bytes(0); }
  [[nodiscard]] std::size_t output_bytes() const {
    return model_->boundary_bytes(model_->stages());
  }

  /// Makes requests of one size adjacent if only those run together.
  void arrange(rows_type& set, const deferred::batch& b) const noexcept {
    set.requests.clear();
    for (const request& r : b.requests) {
      set.requests.push_back(static_cast<const tensor_request*>(&r));
    }
    if (sizes_ == row_sizes::equal) std::ranges::sort(set.requests, {}, &tensor_request::size);
    const bool is_one = set.is_one_request();
    COHORT_ASSERT(is_one ||
                  std::ranges::all_of(set.requests, [](auto* r) { return r->rows == 1; }));
    set.unfit.assign(is_one ? set.requests.front()->rows : set.requests.size(), 0);
  }
  /// The end of the slice that begins with row `first`.
  [[nodiscard]] std::size_t slice_end(const rows_type& set, std::size_t first) const noexcept {
    if (sizes_ != row_sizes::equal || set.is_one_request()) return set.unfit.size();
    std::size_t end = first + 1;
    while (end < set.requests.size() && set.requests[end]->size == set.requests[first]->size) ++end;
    return end;
  }
  /// Stage by stage: a slice's stage may overwrite rows of another slice that an earlier one reads.
  void run_stages(lane<Executor>& l, typename lane<Executor>::slot& s) {
    rows_type& set = *s.rows;
    for (std::size_t i = 0; i < model_->stages(); ++i) {
      for (std::size_t first = 0; first < set.unfit.size();) {
        const std::size_t end = slice_end(set, first);
        std::uint32_t size = 0;
        for (std::size_t k = first; sizes_ != row_sizes::one && k < end; ++k) {
          size = std::max(size, set.requests[set.is_one_request() ? 0 : k]->size);
        }
        runtime::slice part = slice_of(set, i, first, end - first, size);
        part.is_whole = set.requests.front()->rows > 1;
        part.unfit = &set.unfit[first];
        part.given_up = &s.given_up;
        model_->enqueue(i, l.stream_, part);
        first = end;
      }
    }
  }
  [[nodiscard]] runtime::slice slice_of(rows_type& set, std::size_t i, std::size_t first,
                                        std::size_t count, std::uint32_t size) const {
    return {.input = set.rows[i % 2].data(),
            .output = set.rows[(i + 1) % 2].data(),
            .input_stride = model_->boundary_bytes(i),
            .output_stride = model_->boundary_bytes(i + 1),
            .first = static_cast<std::uint32_t>(first),
            .count = static_cast<std::uint32_t>(count),
            .size = size};
  }
  void copy_in(lane<Executor>& l, typename lane<Executor>::slot& s) {
    rows_type& set = *s.rows;
    const std::size_t bytes = input_bytes();
    if constexpr (has_host_buffers<Executor> && runtime::launching_executor<Executor>) {
      if (bytes * set.unfit.size() > long_copy) {
        return l.executor_->launch(l.stream_, [&s, bytes] {
          using holder = typename lane<Executor>::holder;
          auto expected = holder::device;
          if (!s.held_by.compare_exchange_strong(expected, holder::gathering)) return;
          gather(*s.rows, bytes);
          s.held_by.store(holder::device);
        });
      }
    }
    gather(set, bytes);
    if constexpr (!has_host_buffers<Executor>) {
      l.executor_->copy(l.stream_, {.destination = set.rows[0].data(),
                                    .source = set.in,
                                    .row_bytes = bytes * set.unfit.size()});
    }
  }
  static void gather(rows_type& set, std::size_t row_bytes) noexcept {
    std::byte* to = set.in;
    for (const tensor_request* r : set.requests) {
      copy_rows(to, row_bytes, *r);
      to += row_bytes;
    }
  }
  void copy_out(lane<Executor>& l, rows_type& s) {
    const std::size_t bytes = output_bytes();
    s.outputs.clear();
    for (const tensor_request* r : s.requests) {
      s.outputs.push_back(r->output.first(std::min(bytes * r->rows, r->output.size())));
    }
    if constexpr (!has_host_buffers<Executor>) {
      l.executor_->copy(
          l.stream_,
          {.destination = s.out, .source = last_rows(s), .row_bytes = bytes * s.unfit.size()});
    }
  }
  [[nodiscard]] std::byte* last_rows(rows_type& s) const {
    return s.rows[model_->stages() % 2].data();
  }

  std::unique_ptr<Model> model_;
  row_sizes sizes_;
  staging_rows<Executor> zeros_;               // For a warm-up row,
  std::atomic<bool> warm_up_given_up_{false};  // whose result is unwanted.
  std::array<rows_type, depth> sets_;          // By slot.
};

}  // namespace cohort::engine
