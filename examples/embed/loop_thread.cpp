// SPDX-License-Identifier: Apache-2.0
// cohort in a threaded server: the core under one lock, with one thread per device and one for the
// core's timer. Any thread submits a request and waits for its answer.
#include <cohort/core/clock.hpp>
#include <cohort/engine/engine_core.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "my_model.hpp"

using namespace cohort;
using namespace std::chrono_literals;

struct waiting_job : job {
  std::promise<outcome> how;
};

class server {
 public:
  explicit server(unsigned devices) : work_(devices) {
    model_ = core_.add_model(my_model);
    for (unsigned i = 0; i < devices; ++i) {
      const device_id d = core_.add_device(clock_.now());
      threads_.emplace_back([this, d] { run_device(d); });
    }
    threads_.emplace_back([this] { run_timer(); });
  }
  ~server() {
    {
      const std::lock_guard lock{mutex_};
      is_stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  /// The square root of x, if it is ready in time. Any thread.
  std::optional<float> ask(float x, duration within) {
    waiting_job j;
    {
      const std::lock_guard lock{mutex_};
      j.model = model_;
      j.in = x;
      j.arrival = clock_.now();
      j.deadline = j.arrival + within;
      if (core_.submit(j, j.arrival, *this)) return std::nullopt;  // Refused.
      turn();
    }
    return j.how.get_future().get() == outcome::completed ? std::optional{j.out} : std::nullopt;
  }

  // Carries out the core's decisions; the core calls these functions, under the lock.
  void launch(const deferred::batch& b) noexcept { work_[b.device.index()] = &b; }
  void ended(request& r, outcome how) noexcept {
    // Setting the value may end the job's lifetime.
    static_cast<waiting_job&>(r).how.set_value(how);
  }
  void model_removed(model_id /*m*/) noexcept {}

 private:
  /// After each event: handles due work, and sets the next wake-up.
  void turn() {
    core_.advance(clock_.now(), *this);
    changed_.notify_all();
  }
  void run_device(device_id d) {
    std::unique_lock lock{mutex_};
    const deferred::batch*& mine = work_[d.index()];
    for (;;) {
      changed_.wait(lock, [&] { return mine != nullptr || is_stopping_; });
      if (mine == nullptr) return;
      const deferred::batch& b = *mine;
      mine = nullptr;  // A device runs one batch at a time.
      lock.unlock();
      run(b);
      lock.lock();
      core_.on_complete(b.at(), /*failed=*/false, clock_.now(), *this);
      turn();
    }
  }
  void run_timer() {
    std::unique_lock lock{mutex_};
    while (!is_stopping_) {
      const time_point wake = std::min(core_.next_wake(), clock_.now() + 1h);
      changed_.wait_until(lock, std::chrono::steady_clock::time_point{wake.time_since_epoch()});
      turn();
    }
  }

  steady_clock clock_;
  engine::engine_core core_;
  model_id model_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const deferred::batch*> work_;  // By device.
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

int main() {
  server s{2};
  std::atomic<int> right{0}, late{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 16; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 100; ++i) {
        const auto x = static_cast<float>(c + i);
        const std::optional<float> root = s.ask(x, 5s);
        if (!root) ++late;
        if (root && std::abs(*root * *root - x) < 0.01F) ++right;
      }
    });
  }
  for (std::thread& t : clients) t.join();
  std::printf("%d of 1600 right, %d refused or late\n", right.load(), late.load());
  return right == 1600 ? 0 : 1;
}
