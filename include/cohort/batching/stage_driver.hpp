// SPDX-License-Identifier: Apache-2.0
/// @file
/// Carries out a pipeline on a device: streams, events and buffers behind the sink of `pipeline`.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/staged_host.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace cohort::batching {

/// Where rows are copied to the device and back.
enum class copy_rule : std::uint8_t {
  apart,     ///< In stages of their own, the first and the last: copies overlap with the model.
  together,  ///< With the model's first stage and its last: two hand-overs fewer for each row.
};

/// Runs the stages of a model on an executor. With `copy_rule::apart` the pipeline has two stages
/// more than the model: the first copies inputs to the device, the last copies outputs back. Each
/// stage of each lane has a stream of its own; stages are ordered on the device by events: a launch
/// waits for the last write of its input and the last read of its output, and the host never waits
/// on the path. The executor's completions are collected by the thread that owns the pipeline.
/// Memory: sets × (batch_max + 1) × (sum of the bytes of boundaries and exits), allocated at
/// construction; nothing later. Thread safety: none, except that completions come from the
/// executor's threads.
/// @tparam Executor `runtime::executor`.  @tparam Model `runtime::staged_model` over its streams.
/// @tparam Host `staged_host`.  Source: DVABatch, section 6.3.
template <runtime::executor Executor, runtime::staged_model<typename Executor::stream> Model,
          staged_host Host>
class stage_driver {
 public:
  /// @param models One instance for each stage of each lane, lane by lane: each has its own work
  ///               space, and can run every stage. All outlive the driver.
  /// @param bucket_sizes Padded input size of each bucket; empty: inputs are of one size.
  /// @param share Share of the device's compute for each stream.
  /// @param copies Use `together` where copying takes less time than a hand-over.
  /// @throws config_error If a number does not fit.
  /// @throws resource_error If the executor lacks the memory.
  stage_driver(Executor& e, std::span<Model* const> models, Host& host, std::uint32_t lanes,
               std::uint32_t sets, std::uint32_t batch_max,
               std::span<const std::uint32_t> bucket_sizes = {}, device_share share = {},
               copy_rule copies = copy_rule::apart)
      : executor_{&e},
        host_{&host},
        sets_{sets},
        lanes_{lanes},
        lead_{copies == copy_rule::apart ? 1U : 0U},
        bucket_sizes_{bucket_sizes.begin(), bucket_sizes.end()} {
    expects(lanes >= 1 && sets >= 1, "stage_driver: lanes and sets must be at least 1");
    expects(!models.empty(), "stage_driver: models must not be empty");
    const auto model_stages = static_cast<std::uint32_t>(models.front()->stages());
    expects(models.size() == std::size_t{lanes} * model_stages,
            "stage_driver: models must be one for each stage of each lane");
    models_.assign(models.begin(), models.end());
    stages_ = model_stages + 2 * lead_;
    for (std::uint32_t b = 0; b <= model_stages; ++b) {
      strides_.push_back(models.front()->boundary_bytes(b));
      for (std::uint32_t j = 0; j < sets; ++j) {
        buffers_.push_back(e.allocate(strides_.back() * (batch_max + 1)));
      }
    }
    if constexpr (has_exits) {
      exits_.resize(std::size_t{model_stages} * sets);
      for (std::uint32_t i = 0; i + 1 < model_stages; ++i) {
        for (std::uint32_t j = 0; j < sets && models.front()->has_exit(i); ++j) {
          exits_[i * sets + j] = e.allocate(strides_.back() * batch_max);
        }
      }
    }
    for (std::uint32_t i = 0; i < (stages_ + 1) * sets; ++i) written_.push_back(e.make_event());
    for (std::uint32_t i = 0; i < lanes * stages_; ++i) {
      streams_.push_back(e.make_stream(share));
      nodes_.push_back(std::make_unique<node>(signal_, host, batch_max + 1));
    }
  }
  stage_driver(const stage_driver&) = delete;
  stage_driver& operator=(const stage_driver&) = delete;

  /// Stages of the pipeline: those of the model, and the copies in and out if they are apart.
  [[nodiscard]] std::uint32_t stages() const noexcept { return stages_; }

  // The sink of the pipeline.
  static constexpr bool runs_through = true;
  void launch(const stage_launch& l) {
    auto& s = streams_[l.lane * stages_ + l.stage];
    node& n = *nodes_[l.lane * stages_ + l.stage];
    n.threw = false;
    n.model = nullptr;
    n.given_up.store(false, std::memory_order_relaxed);
    if constexpr (hears_of_unfit) n.begin(l);
    try {
      executor_->wait(s, event(l.stage, l.set));  // The last writer of the input.
      for (std::uint32_t i = l.stage; i <= l.last; ++i) {
        if (i + 2 <= stages_) executor_->wait(s, event(i + 2, l.set));  // Reader of the output.
        run_stage(i, s, l, n);
        executor_->record(s, event(i + 1, l.set));
      }
    } catch (const std::exception& e) {
      // Reported as failed once the work launched before no longer uses the rows.
      n.threw = true;
      tell_failure(*host_, e.what());
    } catch (...) {
      n.threw = true;
    }
    n.state.store(node::running, std::memory_order_relaxed);
    executor_->notify(s, n);
  }
  void move(std::uint32_t set, std::uint32_t boundary, std::uint32_t from, std::uint32_t to) {
    const std::uint32_t lane = lanes_ > 1 ? set : 0;
    auto& s = streams_[lane * stages_ + boundary - 1];  // Stream of the stage that wrote it.
    const std::uint32_t b = boundary - lead_;
    executor_->copy(s, {.destination = buffer(b, set) + to * strides_[b],
                        .source = buffer(b, set) + from * strides_[b],
                        .row_bytes = strides_[b]});
    executor_->record(s, event(boundary, set));
  }
  void end(const staged_request& r, outcome how, time_point now) { host_->ended(r, how, now); }
  [[nodiscard]] bool judges(std::uint32_t stage) {
    if constexpr (has_exits) {
      return stage >= lead_ && stage + 1 + lead_ < stages_ &&
             models_.front()->has_exit(stage - lead_) && host_->judges(stage - lead_);
    }
    return false;
  }
  [[nodiscard]] verdict judge(const staged_request& r, std::uint32_t stage) {
    if constexpr (has_exits) return host_->judge(r, stage - lead_);
    return verdict::go_on;
  }

  /// Ends work that hangs, if its model can (`interrupt`) and none of its requests is wanted.
  /// @param is_wanted `is_wanted(tag)`.
  template <class IsWanted>
  void give_up(IsWanted is_wanted) noexcept {
    if constexpr (requires(Model& m) { m.interrupt(); } && hears_of_unfit) {
      for (const std::unique_ptr<node>& n : nodes_) {
        const auto is_awaited = [&](std::uint64_t tag) {
          return tag != node::no_tag && is_wanted(tag);
        };
        if (n->state.load(std::memory_order_acquire) != node::running ||
            std::ranges::any_of(n->tags, is_awaited)) {
          continue;
        }
        n->given_up.store(true);
        if (n->model != nullptr) n->model->interrupt();
      }
    }
  }

  /// Reports every finished stage to the pipeline. @returns Whether there was one.
  template <class Pipeline>
  bool collect(Pipeline& p, time_point now) {
    bool any = false;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      const int state = nodes_[i]->state.load(std::memory_order_acquire);
      if (state != node::done && state != node::failed) continue;
      nodes_[i]->state.store(node::idle, std::memory_order_relaxed);
      any = true;
      if (state == node::done) let_go_unfit(p, *nodes_[i], now);
      p.on_complete(i / stages_, i % stages_, now, *this, state == node::failed);
    }
    return any;
  }

  /// How many completions there have been; changes with each.
  [[nodiscard]] std::uint64_t completions() const noexcept {
    return signal_.load(std::memory_order_acquire);
  }
  /// Blocks until there have been other than `seen` completions.
  void wait_for_completion(std::uint64_t seen) const noexcept { signal_.wait(seen); }

 private:
  static constexpr bool has_exits =
      runtime::exiting_model<Model, typename Executor::stream> && requirement::judges_results<Host>;

  static void tell_failure(const Host& h, const char* why) noexcept {
    if constexpr (requires { h.failure(why); }) h.failure(why);
  }

  struct node : runtime::completion {
    static constexpr int idle = 0;
    static constexpr int running = 1;
    static constexpr int done = 2;
    static constexpr int failed = 3;
    node(std::atomic<std::uint64_t>& s, Host& h, std::uint32_t most) : signal{&s}, host{&h} {
      unfit.reserve(most);
      tags.reserve(most);
      invoke = [](runtime::completion& self, bool has_failed) noexcept {
        node& n = static_cast<node&>(self);
        std::atomic<std::uint64_t>& out = *n.signal;
        const int value = has_failed || n.threw ? failed : done;
        if (has_failed && self.error != nullptr) tell_failure(*n.host, self.error);
        if constexpr (requires { n.host->publish(n.state, value); }) {
          n.host->publish(n.state, value);
        } else {
          n.state.store(value, std::memory_order_release);
        }
        out.fetch_add(1, std::memory_order_release);
        out.notify_all();
      };
    }
    void begin(const stage_launch& l) noexcept {
      unfit.assign(l.count, 0);
      tags.clear();
      for (const slot& x : l.slots) tags.push_back(x.live ? x.request.tag : no_tag);
    }
    static constexpr std::uint64_t no_tag = ~std::uint64_t{0};
    std::atomic<int> state{idle};
    bool threw = false;
    Model* model = nullptr;             // The running model, if any,
    std::atomic<bool> given_up{false};  // and whether its result is unwanted.
    std::vector<std::uint8_t> unfit;    // By slot of the running row, set by the model,
    std::vector<std::uint64_t> tags;    // and the slots' requests.
    std::atomic<std::uint64_t>* signal;
    Host* host;
  };

  static constexpr bool hears_of_unfit = requires(Host& h) { h.unfit(std::uint64_t{}, true); };
  /// Requests that a model did not compute leave, while their row still counts as running.
  template <class Pipeline>
  void let_go_unfit(Pipeline& p, const node& of, time_point now) {
    if constexpr (hears_of_unfit) {
      for (std::size_t i = 0; i < of.unfit.size(); ++i) {
        if (of.unfit[i] == runtime::slot_state::fit || of.tags[i] == node::no_tag) continue;
        host_->unfit(of.tags[i], of.unfit[i] == runtime::slot_state::unfit);
        p.on_cancel(of.tags[i], now, *this);
      }
    }
  }

  /// The event of the boundary that the pipeline's stage `boundary` - 1 writes, recorded after each
  /// launch.
  typename Executor::event& event(std::uint32_t boundary, std::uint32_t set) noexcept {
    return written_[boundary * sets_ + set];
  }
  [[nodiscard]] std::byte* buffer(std::uint32_t model_boundary, std::uint32_t set) noexcept {
    return reinterpret_cast<std::byte*>(buffers_[model_boundary * sets_ + set].data());
  }
  [[nodiscard]] std::uint32_t size_of(std::uint32_t bucket) const noexcept {
    return bucket_sizes_.empty() ? 0 : bucket_sizes_[bucket];
  }
  void run_stage(std::uint32_t stage, typename Executor::stream& s, const stage_launch& l,
                 node& n) {
    const std::uint32_t model_stages = stages_ - 2 * lead_;
    if (stage == 0) copy_in(s, l);
    if (stage >= lead_ && stage < lead_ + model_stages) run_model(stage, model_stages, s, l, n);
    if (stage + 1 == stages_) copy_out(s, l, buffer(model_stages, l.set));
  }
  void run_model(std::uint32_t stage, std::uint32_t model_stages, typename Executor::stream& s,
                 const stage_launch& l, node& n) {
    // A run stays with the first stage's instance: its work space is in the caches.
    Model& model = *models_[l.lane * model_stages + std::max(l.stage, lead_) - lead_];
    n.model = &model;
    const std::uint32_t b = stage - lead_;
    const runtime::slice all{.input = buffer(b, l.set),
                             .output = buffer(b + 1, l.set),
                             .input_stride = strides_[b],
                             .output_stride = strides_[b + 1],
                             .first = l.first,
                             .count = l.count,
                             .size = size_of(l.bucket),
                             .unfit = hears_of_unfit ? n.unfit.data() : nullptr,
                             .given_up = &n.given_up};
    if (stage == l.stage && l.skipping() > 0) {
      run_around(model, b, s, l, all);
    } else {
      model.enqueue(b, s, all);
    }
    if constexpr (has_exits) {
      if (judges(stage)) run_exit(model, b, s, l, all);
    }
  }
  /// Runs a stage that some slots skip: runs it on the others, and copies the skipping rows on.
  void run_around(Model& model, std::uint32_t b, typename Executor::stream& s,
                  const stage_launch& l, const runtime::slice& all) {
    expects(strides_[b] == strides_[b + 1],
            "stage_driver: a stage that is skipped must give rows of the size that it takes");
    const auto skips = [&](std::uint32_t i) { return l.slots[i].live && l.slots[i].skips; };
    for (std::uint32_t i = 0; i < l.count;) {
      std::uint32_t end = i + 1;
      while (end < l.count && skips(end) == skips(i)) ++end;
      runtime::slice part = all;
      part.first = l.first + i;
      part.count = end - i;
      if (all.unfit != nullptr) part.unfit = all.unfit + i;
      if (skips(i)) {
        executor_->copy(s, {.destination = all.output + part.first * strides_[b],
                            .source = all.input + part.first * strides_[b],
                            .row_bytes = part.count * strides_[b]});
      } else {
        model.enqueue(b, s, part);
      }
      i = end;
    }
  }
  void run_exit(Model& model, std::uint32_t b, typename Executor::stream& s, const stage_launch& l,
                const runtime::slice& all) {
    auto* const rows = reinterpret_cast<std::byte*>(exits_[b * sets_ + l.set].data());
    runtime::slice x = all;
    x.input = all.output;
    x.input_stride = all.output_stride;
    x.output = rows;
    x.output_stride = strides_.back();
    model.enqueue_exit(b, s, x);
    copy_out(s, l, rows);
  }
  void copy_in(typename Executor::stream& s, const stage_launch& l) {
    for (std::uint32_t i = 0; i < l.count; ++i) {
      if (!l.slots[i].live) continue;
      executor_->copy(s, {.destination = buffer(0, l.set) + (l.first + i) * strides_.front(),
                          .source = host_->io(l.slots[i].request.tag).input,
                          .row_bytes = strides_.front()});
    }
  }
  void copy_out(typename Executor::stream& s, const stage_launch& l, const std::byte* rows) {
    const std::size_t bytes = strides_.back();
    for (std::uint32_t i = 0; i < l.count; ++i) {
      if (!l.slots[i].live) continue;
      executor_->copy(s, {.destination = host_->io(l.slots[i].request.tag).output,
                          .source = rows + (l.first + i) * bytes,
                          .row_bytes = bytes});
    }
  }

  Executor* executor_;
  Host* host_;
  std::uint32_t sets_;
  std::uint32_t lanes_;
  std::uint32_t lead_;  // Stages before the model's first.
  std::vector<std::uint32_t> bucket_sizes_;
  std::uint32_t stages_ = 0;
  std::vector<Model*> models_;
  std::vector<std::size_t> strides_;
  std::atomic<std::uint64_t> signal_{0};
  std::vector<std::unique_ptr<node>> nodes_;
  std::vector<typename Executor::buffer> buffers_;
  std::vector<typename Executor::buffer> exits_;  // By the model's stage and set; for some stages.
  std::vector<typename Executor::event> written_;
  std::vector<typename Executor::stream> streams_;  // Last: destroyed first, which waits for work.
};

}  // namespace cohort::batching
