// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/sharded/rank_half.hpp>
#include <cohort/deferred/sharded/shard_half.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <support/is_sanitized.hpp>
#include <support/owned_requests.hpp>

namespace cohort::deferred::interleavings_test {
namespace {
using namespace std::chrono_literals;

/// Two shards, a rank, a model and two devices, each of which acts when it is told to, so that
/// every order of their actions can be tried: a word overtaken by a grant, a grant that finds less
/// than was offered for, or nothing, a batch that ends before the rank has heard of it, a model
/// that moves meanwhile.
class world {
 public:
  enum class action : std::uint8_t { shard0, shard1, rank, arrival, cancel, end, move, time };
  static constexpr std::size_t actions = 8;

  world() {
    for (std::uint32_t i = 0; i < 2; ++i) halves_.emplace_back(between_, i);
    halves_[0].add_model(model_id{0},
                         {.latency = latency_curve{linear_latency{4ms, 1ms}, 2}, .slo = 12ms});
    for (int i = 0; i < 2; ++i) rank_.add_device(now_);
  }
  ~world() {
    for (batch& b : running_) b.requests.clear();
  }
  world(const world&) = delete;

  /// @returns Whether it could be done.
  bool act(action a) {
    switch (a) {
      case action::shard0:
      case action::shard1:
        halves_[a == action::shard1 ? 1 : 0].step(now_, *this);
        return true;
      case action::rank:
        rank_.step(now_);
        return true;
      case action::arrival: {
        if (made_ == 4 || owner_ == in_between) return false;
        request& r = requests_.add();
        r.id = request_id{made_++};
        r.arrival = now_;
        r.deadline = now_ + 12ms;
        halves_[owner_].on_arrival(r, now_, *this);
        return true;
      }
      case action::cancel: {
        const auto waits = [](const request* r) { return r->state == request_state::queued; };
        const auto r = std::ranges::find_if(requests_.live(), waits);
        if (r == requests_.live().end() || owner_ == in_between) return false;
        request& cancelled = **r;  // Others may end meanwhile.
        REQUIRE(halves_[owner_].on_cancel(cancelled, now_, *this));
        end(cancelled);
        return true;
      }
      case action::end:
        if (running_.empty()) return false;
        end_first();
        return true;
      case action::move:
        if (moves_ == 2 || owner_ == in_between) return false;
        ++moves_;
        halves_[owner_].give_up(model_id{0});
        return true;
      case action::time:
        now_ += 3ms;
        return true;
    }
    return false;
  }
  /// Everybody acts in turn until nothing is left to do; then nothing may be left.
  void settle() {
    for (int i = 0; i < 200; ++i) {
      halves_[0].step(now_, *this);
      halves_[1].step(now_, *this);
      rank_.step(now_);
      if (i % 4 == 3) {
        while (!running_.empty()) end_first();
        now_ += 2ms;
      }
    }
    REQUIRE(requests_.live().empty());
    for (std::uint32_t i = 0; i < made_; ++i) REQUIRE(ends_[i] == 1);
    REQUIRE(rank_.devices().idle_devices() == 2);
    REQUIRE(owner_ != in_between);
    REQUIRE(rank_.shard_of(model_id{0}) == owner_);
    REQUIRE(halves_[owner_].models().is_served(model_id{0}));
    REQUIRE_FALSE(halves_[1 - owner_].models().is_served(model_id{0}));
  }
  [[nodiscard]] bool has_batches() const noexcept { return batches_ > 0; }

  // The halves' sink.
  void dispatch(batch&& b) noexcept {
    ++batches_;
    running_.push_back(std::move(b));
  }
  void drop(request& r) noexcept { end(r); }
  void left(model_id id, model_state&& m) noexcept {
    halves_[1 - owner_].put_model(id, std::move(m), now_);
    owner_ = 1 - owner_;
  }

 private:
  static constexpr std::uint32_t in_between = 2;

  void end(request& r) noexcept {
    ++ends_[r.id.value()];
    requests_.end(r);
  }
  void end_first() {
    batch b = std::move(running_.front());
    running_.erase(running_.begin());
    while (!b.requests.empty()) {
      request& r = b.requests.front();
      b.requests.pop_front();
      end(r);
    }
    rank_.on_complete(b.at(), now_);
  }

  test::owned_requests<> requests_;
  std::uint32_t made_ = 0;
  std::array<int, 4> ends_{};  // By id.
  time_point now_{};
  exchange between_{2, 1};
  std::deque<shard_half> halves_;
  rank_half rank_{between_};
  std::uint32_t owner_ = 0;
  std::vector<batch> running_;
  int moves_ = 0;
  int batches_ = 0;
};

/// Every sequence of so many actions after `start`.
void explore(const std::vector<world::action>& start, std::size_t length) {
  std::vector<std::size_t> next(length, 0);
  std::size_t tried = 0;
  std::size_t with_batches = 0;
  for (bool goes_on = true; goes_on;) {
    world w;
    for (const world::action a : start) REQUIRE(w.act(a));
    std::size_t done = 0;
    for (std::string order; done < length; ++done) {
      order += std::to_string(next[done]);
      CAPTURE(order);
      if (!w.act(static_cast<world::action>(next[done]))) break;
    }
    if (done == length) {
      w.settle();
      ++tried;
      with_batches += w.has_batches();
    }
    // The next sequence: what follows an action that could not be done need not be tried.
    std::size_t at = std::min(done, length - 1);
    std::fill(next.begin() + static_cast<std::ptrdiff_t>(at) + 1, next.end(), 0);
    for (;; --at) {
      if (++next[at] < world::actions) break;
      next[at] = 0;
      if (at == 0) {
        goes_on = false;
        break;
      }
    }
  }
  MESSAGE(tried << " sequences, " << with_batches << " with batches");
  REQUIRE(with_batches * 2 > tried);
}

TEST_CASE("in whatever order shards and rank act each request ends once and nothing is left") {
  using enum world::action;
  constexpr std::size_t length = test::is_sanitized ? 4 : 5;
  explore({arrival}, length);
  // A grant is on its way.
  explore({arrival, arrival, shard0, rank, time, rank}, length);
  // One is on its way while the model is to move, and a batch runs.
  explore({arrival, arrival, shard0, rank, shard0, arrival, shard0, rank, move}, length);
  // It has moved, and is to move back before the rank has heard of it.
  explore({arrival, arrival, move, shard0, rank, shard0, move}, length);
}

}  // namespace
}  // namespace cohort::deferred::interleavings_test
