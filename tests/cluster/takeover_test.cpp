// SPDX-License-Identifier: Apache-2.0
// A small protocol, explored whole: two pickers, one of which takes over, two streams and an
// endpoint. Every order of messages is tried, with a message lost or doubled anywhere.
#include <cohort/cluster/picker.hpp>

#include <doctest/doctest.h>

#include <cohort/core/latency_model.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cohort::cluster::takeover_test {
namespace {
using namespace std::chrono_literals;
using tested = basic_picker<deferred::basic_scheduler<deferred::eager, deferred::head>>;
constexpr time_point t0{};
constexpr duration term = 20ms;

/// Names one of the options of each step. `next()` goes on to the first path that was not taken.
class path {
 public:
  std::size_t choose(std::size_t options) {
    if (at_ == steps_.size()) steps_.push_back({0, options});
    if (steps_[at_].second != options) FAIL("the run is not deterministic");
    return steps_[at_++].first;
  }
  /// Whether the next step was not taken before.
  [[nodiscard]] bool is_new() const { return at_ == steps_.size(); }
  bool next() {
    at_ = 0;
    while (!steps_.empty() && steps_.back().first + 1 == steps_.back().second) steps_.pop_back();
    if (steps_.empty()) return false;
    ++steps_.back().first;
    return true;
  }
  [[nodiscard]] std::string text() const {
    std::string out;
    for (const auto& [chosen, options] : steps_) out += std::to_string(chosen) + " ";
    return out;
  }

 private:
  std::vector<std::pair<std::size_t, std::size_t>> steps_;
  std::size_t at_ = 0;
};

enum class kind : std::uint8_t { open, close, serve, finish, report, grant, other };
struct message {
  kind what;
  std::uint32_t picker;
  std::uint64_t stream = 0;  // Or the epoch.
  std::uint64_t epoch = 0;
  friend auto operator<=>(const message&, const message&) = default;
};

/// What has happened to each picker and to the endpoint, in order, what is on its way, and the
/// time: paths that agree in this go on alike.
using state = std::vector<std::uint64_t>;

class world {
 public:
  /// @param streams Of the first picker; without faults the gateway gives up
  /// one that is alone.
  /// @param faults Messages that may be lost or doubled.
  world(path& steps, std::set<state>& known, std::uint32_t streams, std::uint32_t faults)
      : steps_{steps}, known_{known}, faults_{faults} {
    for (std::uint32_t p = 0; p < 2; ++p) {
      sides_[p].w = this;
      sides_[p].index = p;
      sides_[p].picker = std::make_unique<tested>(picker_options{
          .lease = 10s, .settle = 20ms, .memory = 16, .health = {.hands_back = true}});
      sides_[p].picker->add_model(
          {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 2},
                          .slo = 100ms,
                          .queue_capacity = 4}});
      sides_[p].picker->add_endpoint(1);
    }
    sides_[0].picker->on_grant(1, t0 + term, t0, sides_[0]);
    for (side& s : sides_) s.picker->on_report(endpoint_id{0}, {.sequence = 1}, t0, s);
    for (std::uint64_t id = 1; id <= streams; ++id) post({kind::open, 0, id});
    if (streams == 1 && faults == 0) post({kind::close, 0, 1});
  }

  /// @returns Whether the path came to its end, and not to a state that is known.
  bool run() {
    for (bool goes_on = true; goes_on;) {
      if (steps_.is_new() && !known_.insert(present()).second) return false;
      goes_on = step();
    }
    // What is left of time: batches that hang are given up, and a probe is answered.
    for (int i = 0; i < 10; ++i) {
      wait(500ms);
      for (side& s : sides_) {
        s.picker->on_report(endpoint_id{0}, {.sequence = ++s.sequence}, now_, s);
        s.picker->advance(now_, s);
      }
    }
    for (side& s : sides_) {
      CHECK(s.picker->live_streams() == 0);
      CHECK(s.picker->batches_of(endpoint_id{0}) == 0);
      for (const auto& [id, seen] : s.streams) {
        CAPTURE(id);
        CHECK(seen.answers <= 1);
        if (seen.is_opened && !seen.is_closed) CHECK(seen.answers == 1);
        if (seen.is_opened) CHECK(seen.ends == 1);
      }
    }
    CHECK(is_taken_over_);
    return true;
  }

 private:
  struct seen_stream {
    int answers = 0;
    int ends = 0;
    bool is_opened = false;
    bool is_closed = false;  // Before its answer.
  };
  struct side {
    world* w = nullptr;
    std::uint32_t index = 0;
    std::unique_ptr<tested> picker{};
    std::map<std::uint64_t, seen_stream> streams{};
    std::vector<std::uint64_t> heard{};
    std::uint64_t sequence = 1;
    bool is_idle_known = false;  // The endpoint has said so in this term.

    void answer(const picker_answer& a) noexcept { w->answered(*this, a); }
    void over(request_id id, outcome) noexcept { ++streams[id.value()].ends; }
  };

  [[nodiscard]] state present() const {
    state out{static_cast<std::uint64_t>(now_.time_since_epoch().count()), faults_, epoch_,
              running_};
    for (const side& x : sides_) {
      out.insert(out.end(), x.heard.begin(), x.heard.end());
      out.push_back(UINT64_MAX);
    }
    for (const message& m : pool_) out.push_back(code(m));
    return out;
  }
  [[nodiscard]] static std::uint64_t code(const message& m) {
    return static_cast<std::uint64_t>(m.what) << 32U | m.picker << 24U | m.stream << 16U | m.epoch;
  }
  void post(const message& m) { pool_.insert(std::ranges::upper_bound(pool_, m), m); }

  /// Does one thing of all that can be done. @returns Whether there was one.
  bool step() {
    const bool may_pass = !is_taken_over_ || !pool_.empty();
    const std::size_t n = pool_.size();
    const std::size_t faulty = faults_ > 0 ? 2 * n : 0;
    const std::size_t options = n + faulty + (may_pass && now_ < t0 + 2 * term);
    if (options == 0) return !is_taken_over_;
    std::size_t which = steps_.choose(options);
    if (which < n) return deliver(take(which));
    which -= n;
    if (which < faulty) {
      --faults_;
      if (which < n) {
        take(which);
      } else {
        const message m = pool_[which - n];
        deliver(m);  // And it is still there.
      }
      return true;
    }
    return pass();
  }
  void wait(duration d) {
    const time_point until = now_ + d;
    for (side& s : sides_) {
      const time_point before = now_;
      for (time_point due; (due = s.picker->next_wake()) <= until;) {
        now_ = std::max(now_, due);
        s.picker->advance(now_, s);
      }
      now_ = before;
    }
    now_ = until;
  }
  message take(std::size_t i) {
    const message m = pool_[i];
    pool_.erase(pool_.begin() + static_cast<std::ptrdiff_t>(i));
    return m;
  }
  /// Time goes on by a term; when the first has run out the store gives the next one.
  bool pass() {
    wait(term);
    if (now_ >= t0 + term && !is_taken_over_) {
      is_taken_over_ = true;
      post({kind::other, 0, 2});
      post({kind::grant, 1, 2});
      post({kind::report, 1, 0});
      post({kind::open, 1, 3});
    }
    return true;
  }
  bool deliver(const message& m) {
    side& s = sides_[m.picker];
    tested& p = *s.picker;
    if (m.what != kind::serve) {
      s.heard.push_back(code(m) | static_cast<std::uint64_t>(m.what == kind::report) * running_);
      s.heard.push_back(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    }
    seen_stream& seen = s.streams[m.stream];
    switch (m.what) {
      case kind::open:
        seen.is_opened |= !seen.is_closed;
        p.on_stream(request_id{m.stream}, model_id{0}, now_, now_, s);
        break;
      case kind::close:
        seen.is_closed |= seen.answers == 0;
        p.on_closed(request_id{m.stream}, now_, s);
        break;
      case kind::serve:
        // The endpoint keeps to the newest term.
        if (m.epoch >= epoch_) {
          epoch_ = m.epoch;
          ++running_;
        }
        post({kind::finish, m.picker, m.stream, m.epoch});
        return true;
      case kind::finish:
        if (running_ > 0) --running_;
        p.on_finished(request_id{m.stream}, m.epoch < epoch_, now_, s);
        break;
      case kind::report:
        s.is_idle_known |= running_ == 0 && p.leads();
        p.on_report(endpoint_id{0}, {.sequence = ++s.sequence, .gauges = {.running = running_}},
                    now_, s);
        break;
      case kind::grant:
        p.on_grant(m.stream, t0 + 1h, now_, s);
        break;
      case kind::other:
        p.on_other_term(m.stream, now_, s);
        break;
    }
    p.advance(now_, s);
    return true;
  }
  void answered(side& s, const picker_answer& a) {
    seen_stream& seen = s.streams[a.stream.value()];
    ++seen.answers;
    CHECK_FALSE(seen.is_closed);
    if (a.kind != answer_kind::pick) return;
    // The first picks within its term, the second after it, and each with its own epoch.
    CHECK((s.index == 0 ? now_ < t0 + term : now_ >= t0 + term));
    CHECK(a.epoch == s.index + 1);
    CHECK(s.picker->batches_of(endpoint_id{0}) == 1);
    // The second trusts the endpoint when that has told it that it is idle, or has settled.
    if (s.index == 1 && now_ < t0 + term + 20ms) CHECK(s.is_idle_known);
    post({kind::serve, s.index, a.stream.value(), a.epoch});
  }

  path& steps_;
  std::set<state>& known_;
  std::uint32_t faults_;
  std::array<side, 2> sides_;
  std::vector<message> pool_;  // Sorted.
  time_point now_ = t0;
  bool is_taken_over_ = false;
  std::uint64_t epoch_ = 0;
  std::uint32_t running_ = 0;
};

/// @returns The number of states.
std::size_t explore(std::uint32_t streams, std::uint32_t faults) {
  std::set<state> known;
  path steps;
  std::size_t ends = 0;
  do {
    CAPTURE(steps.text());
    ends += world{steps, known, streams, faults}.run();
  } while (steps.next());
  CHECK(ends > 0);
  return known.size();
}

TEST_CASE("no order of messages breaks a takeover") {
  CHECK(explore(1, 0) > 1000);
  CHECK(explore(2, 0) > 10000);
}
TEST_CASE("no message that is lost or doubled breaks a takeover") { CHECK(explore(1, 1) > 10000); }

}  // namespace
}  // namespace cohort::cluster::takeover_test
