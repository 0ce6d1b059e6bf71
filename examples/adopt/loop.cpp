// SPDX-License-Identifier: Apache-2.0
// cohort in a loop of your own, with a model of your own: a thread, a queue of events, and the core
// as a value in it. The model is measured first: the core must know how long batches take.
#include <cohort/core/clock.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/window.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/measure.hpp>
#include <cohort/runtime/host.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <string_view>
#include <thread>

#include "my_model.hpp"

using namespace cohort;
using namespace std::chrono_literals;
using executor_type = runtime::host_executor;
// Or runtime::onnx::onnx_model<executor_type>, made of a session: rows are as its boundaries say.
using model_type = square_roots<executor_type>;
constexpr std::uint32_t batch_max = 16;

struct job : request {  // Yours; it must live until it has ended.
  numbers in, result;
  numbers* out = &result;
  std::promise<std::string_view> how;
};

class my_loop {  // A thread, a queue and a device; and the core's sink.
 public:
  my_loop(executor_type& e, model_type& m, const latency_curve& latency)
      : executor_{e},
        model_{m},
        memory_{batch_memory{*this}, batch_memory{*this}},
        stream_{e.make_stream()} {
    device_ = core_.add_device(steady_clock{}.now());
    id_ = core_.add_model({.scheduling = {.latency = latency, .slo = 3 * latency(4)}});
    thread_ = std::thread{&my_loop::run, this};
  }
  ~my_loop() {
    post([this](time_point) { stopping_ = true; });
    thread_.join();
  }
  void submit(job& j) {  // From any thread.
    post([this, &j](time_point now) {
      j.model = id_;
      j.arrival = now;
      j.deadline = now + 10s;
      if (const auto refused = core_.submit(j, now, *this)) j.how.set_value(to_string(*refused));
    });
  }

  // What the core wants done, on the loop's thread.
  void launch(const deferred::batch& b) noexcept {
    batch_memory& m = memory_[next_++ % 2];  // A batch may be sent while one runs, not more.
    const auto for_each_row = [&b](auto f) {
      std::size_t at = 0;
      for (const request& r : b.requests) f(static_cast<const job&>(r), row_bytes * at++);
    };
    for_each_row([&](const job& j, std::size_t at) { copy(m.input.data() + at, &j.in); });
    model_.enqueue(0, stream_,
                   {m.input.data(), m.output.data(), row_bytes, row_bytes, 0, b.size()});
    for_each_row([&](const job& j, std::size_t at) { copy(j.out, m.output.data() + at); });
    executor_.notify(stream_, m);
  }
  void ended(request& r, outcome o) noexcept { static_cast<job&>(r).how.set_value(to_string(o)); }
  void model_removed(model_id) noexcept {}

 private:
  using event = std::function<void(time_point)>;
  struct batch_memory : runtime::completion {
    explicit batch_memory(my_loop& l)
        : loop{l},
          input{l.executor_.allocate(row_bytes * batch_max)},
          output{l.executor_.allocate(row_bytes * batch_max)} {
      invoke = [](completion& c, bool failed) noexcept {  // On a thread of the executor.
        auto& m = static_cast<batch_memory&>(c);
        m.loop.post([&m, failed](time_point now) {
          m.loop.core_.on_complete(m.loop.device_, failed, now, m.loop);
        });
      };
    }
    my_loop& loop;
    executor_type::buffer input, output;
  };
  void copy(void* to, const void* from) { executor_.copy(stream_, {to, from, row_bytes}); }
  void post(event e) {
    const std::lock_guard lock{mutex_};
    events_.push_back(std::move(e));
    changed_.notify_one();
  }
  void run() {
    std::deque<event> events;
    while (!stopping_ || core_.in_flight() > 0) {
      const duration idle =
          std::min(core_.next_wake(), steady_clock{}.now() + 1h) - steady_clock{}.now();
      std::unique_lock lock{mutex_};
      changed_.wait_for(lock, idle, [this] { return !events_.empty(); });
      events.swap(events_);
      lock.unlock();
      const time_point now = steady_clock{}.now();
      for (const event& e : events) e(now);
      events.clear();
      core_.advance(now, *this);
    }
  }

  executor_type& executor_;
  model_type& model_;
  engine::basic_engine_core<deferred::basic_scheduler<deferred::eager>> core_;
  device_id device_;
  model_id id_;
  std::array<batch_memory, 2> memory_;
  std::size_t next_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<event> events_;
  bool stopping_ = false;
  executor_type::stream stream_;  // Behind what its work uses.
  std::thread thread_;
};

int main() {
  executor_type executor;
  model_type model{executor, /*rounds=*/1000};
  const numbers sample{1, 2, 3, 4};
  const auto measured =
      engine::measure(executor, model, std::as_bytes(std::span{sample}), {.max_batch = batch_max});
  std::deque<job> jobs(500);
  my_loop loop{executor, model, latency_curve{engine::latency_of(measured), batch_max}};
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].in = {static_cast<float>(i), 0, 2, 3};
    loop.submit(jobs[i]);
  }
  const auto right = std::ranges::count_if(jobs, [](job& j) {
    return j.how.get_future().get() == "completed" && are_roots(j.in, j.result);
  });
  std::printf("%td of 500 right; one takes %.3f ms\n", right, to_ms(measured[0].median));
  return right == 500 ? 0 : 1;
}
