// SPDX-License-Identifier: Apache-2.0
// Two pickers, a gateway and endpoints in virtual time, between which messages are lost, doubled,
// late and out of order.
#include <cohort/cluster/picker.hpp>

#include <doctest/doctest.h>

#include <cohort/core/latency_model.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::cluster::picker_faults_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
using tested = basic_picker<deferred::basic_scheduler<deferred::frontrun, deferred::drop_head>>;

constexpr std::uint32_t endpoints = 3;
constexpr time_point faults_end = t0 + 2s;
constexpr time_point end = t0 + 9s;

class world {
 public:
  explicit world(std::uint64_t seed) : random_{seed}, backends_(endpoints) {
    for (std::uint32_t p = 0; p < 2; ++p) start_picker(p);
    give_term(0);
    for (std::uint32_t e = 0; e < endpoints; ++e) report(e);
    for (std::uint32_t i = 0; i < 80; ++i) at(t0 + 1ms * random_.below(2000), [this] { open(); });
    for (std::uint32_t i = random_.below(3U); i > 0; --i) {
      at(t0 + 1ms * random_.below(2000), [this] { crash_endpoint(random_.below(endpoints)); });
    }
    if (random_.one_in(2)) at(t0 + 1ms * random_.below(2000), [this] { crash_leader(); });
    // After all faults a stream is to be picked.
    at(end - 1s, [this] { last_ = open(); });
  }

  void run() {
    while (!events_.empty() && events_.top().at < end) {
      now_ = events_.top().at;
      const std::function<void()> what = events_.top().what;
      events_.pop();
      what();
      for (auto& p : pickers_) {
        if (!p->is_up) continue;
        while (p->picker->next_wake() < next_event()) {
          now_ = std::max(now_, p->picker->next_wake());
          p->picker->advance(now_, *p);
        }
      }
    }
    for (auto& p : pickers_) {
      if (p->is_up) CHECK(p->picker->live_streams() == 0);
      for (const auto& [id, s] : p->streams) {
        CAPTURE(id);
        CHECK(s.answers <= 1);
        CHECK(s.ends <= 1);
        // An opening that came after its end is no stream.
        if (p->is_up && s.is_opened) CHECK(s.ends == 1);
        if (p->is_up && s.is_opened && !s.is_closed) CHECK(s.answers == 1);
      }
      for (const auto& [batch, b] : p->batches) CHECK(b.streams.size() == b.size);
    }
    CHECK(pickers_[leader_]->streams[last_].is_picked);
  }

 private:
  struct event {
    time_point at;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const event& o) const { return std::pair{at, order} > std::pair{o.at, o.order}; }
  };
  struct seen_stream {
    std::uint32_t answers = 0;
    std::uint32_t ends = 0;
    bool is_opened = false;
    bool is_closed = false;  // Before its answer.
    bool is_picked = false;
  };
  struct seen_batch {
    std::uint32_t size = 0;
    endpoint_id endpoint{};
    time_point at{};
    std::set<std::uint64_t> streams{};
  };
  struct side {
    world& w;
    std::uint32_t index;
    bool is_up = true;
    std::unique_ptr<tested> picker{};
    std::map<std::uint64_t, seen_stream> streams{};
    std::map<std::uint64_t, seen_batch> batches{};
    std::map<std::uint32_t, time_point> heard{};

    void answer(const picker_answer& a) noexcept { w.answered(*this, a); }
    void over(request_id id, outcome) noexcept { ++streams[id.value()].ends; }
  };
  struct backend {
    bool is_up = true;
    std::uint64_t life = 1;
    std::uint64_t sequence = 0;
    std::uint64_t epoch = 0;
    std::uint32_t running = 0;
  };

  void at(time_point when, std::function<void()> what) {
    events_.push({when, ++order_, std::move(what)});
  }
  [[nodiscard]] time_point next_event() const {
    return events_.empty() ? end : std::min(end, events_.top().at);
  }
  /// A message, with what may befall it.
  void send(const std::function<void()>& what) {
    const bool is_safe = now_ >= faults_end;
    if (!is_safe && random_.one_in(25)) return;
    for (int n = !is_safe && random_.one_in(10) ? 2 : 1; n > 0; --n) {
      const duration late = is_safe              ? 1ms
                            : random_.one_in(10) ? 1ms * random_.below(300)
                                                 : 10us * random_.below(500);
      at(now_ + late, what);
    }
  }

  void start_picker(std::uint32_t p) {
    pickers_.push_back(std::make_unique<side>(*this, p));
    pickers_[p]->picker = std::make_unique<tested>(
        picker_options{.lease = 350ms, .settle = 500ms, .health = {.hands_back = true}});
    pickers_[p]->picker->add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{20ms, 5ms}, 8},
                        .slo = 120ms,
                        .queue_capacity = 64}});
    for (std::uint32_t e = 0; e < endpoints; ++e) pickers_[p]->picker->add_endpoint(1);
  }
  template <class F>
  void tell(std::uint32_t p, F f) {
    send([this, p, f] {
      if (!pickers_[p]->is_up) return;
      f(*pickers_[p]->picker, *pickers_[p]);
      pickers_[p]->picker->advance(now_, *pickers_[p]);
    });
  }

  // The store: a term of 400 ms, prolonged each 100 ms; the next is given when it has ended.
  void give_term(std::uint32_t p) {
    leader_ = p;
    term_until_ = now_ + 400ms;
    ++epoch_;
    prolong(epoch_);
  }
  void prolong(std::uint64_t epoch) {
    if (epoch != epoch_) return;
    if (pickers_[leader_]->is_up && (now_ >= faults_end || !random_.one_in(8))) {
      term_until_ = now_ + 400ms;
      const time_point until = term_until_;
      tell(leader_,
           [this, epoch, until](tested& p, side& s) { p.on_grant(epoch, until, now_, s); });
      tell(1 - leader_, [this, epoch](tested& p, side& s) { p.on_other_term(epoch, now_, s); });
    }
    if (now_ + 100ms <= term_until_) {
      at(now_ + 100ms, [this, epoch] { prolong(epoch); });
    } else {
      at(term_until_, [this] { give_term(pickers_[1 - leader_]->is_up ? 1 - leader_ : leader_); });
    }
  }
  void crash_leader() { pickers_[leader_]->is_up = false; }

  // The gateway: it gives up streams without an answer after 500 ms, or early.
  std::uint64_t open() {
    const std::uint64_t id = ++opened_;
    const std::uint32_t p = leader_;
    tell(p, [this, id](tested& picker, side& s) {
      seen_stream& seen = s.streams[id];
      seen.is_opened |= !seen.is_closed || seen.answers > 0;
      picker.on_stream(request_id{id}, model_id{0}, now_, now_, s);
    });
    const bool is_hasty = now_ < faults_end && random_.one_in(10);
    const duration patience = is_hasty ? 1ms * random_.below(200) : 3s;
    at(now_ + patience, [this, id, p] {
      tell(p, [this, id](tested& picker, side& s) {
        seen_stream& seen = s.streams[id];
        seen.is_closed |= seen.answers == 0;
        picker.on_closed(request_id{id}, now_, s);
      });
    });
    return id;
  }
  void answered(side& s, const picker_answer& a) {
    seen_stream& seen = s.streams[a.stream.value()];
    ++seen.answers;
    CHECK_FALSE(seen.is_closed);
    if (a.kind != answer_kind::pick) return;
    seen.is_picked = true;
    // Only the store's present leader picks, and only endpoints that it has heard of.
    CHECK(s.index == leader_);
    CHECK(a.epoch == epoch_);
    CHECK(now_ < term_until_);
    CHECK(now_ < s.heard[a.endpoint.value()] + 350ms);
    CHECK(s.picker->batches_of(a.endpoint) <= 1);
    seen_batch& b = s.batches[a.batch];
    if (b.streams.empty()) b = {a.size, a.endpoint, now_, {}};
    CHECK(b.endpoint == a.endpoint);
    CHECK(b.at == now_);
    CHECK(b.size == a.size);
    b.streams.insert(a.stream.value());
    send([this, p = s.index, a] { serve(p, a); });
  }

  // Endpoints.
  void serve(std::uint32_t p, const picker_answer& a) {
    backend& b = backends_[a.endpoint.index()];
    if (!b.is_up) return;
    const std::uint64_t id = a.stream.value();
    if (a.epoch < b.epoch) return finish(p, id, true);  // Fenced.
    b.epoch = a.epoch;
    ++b.running;
    const duration runs = 20ms + 5ms * a.size + 1ms * random_.below(20);
    at(now_ + runs, [this, p, id, e = a.endpoint.index(), life = b.life] {
      if (!backends_[e].is_up || backends_[e].life != life) return;
      --backends_[e].running;
      finish(p, id, random_.one_in(50));
    });
  }
  void finish(std::uint32_t p, std::uint64_t id, bool failed) {
    tell(p, [this, id, failed](tested& picker, side& s) {
      picker.on_finished(request_id{id}, failed, now_, s);
    });
  }
  void report(std::uint32_t e) {
    backend& b = backends_[e];
    if (b.is_up) {
      const endpoint_report r{
          .life = b.life, .sequence = ++b.sequence, .gauges = {.running = b.running}};
      for (std::uint32_t p = 0; p < 2; ++p) {
        tell(p, [this, e, r](tested& picker, side& s) {
          s.heard[e] = now_;
          picker.on_report(endpoint_id{e}, r, now_, s);
        });
      }
    }
    at(now_ + 100ms, [this, e] { report(e); });
  }
  void crash_endpoint(std::uint32_t e) {
    backends_[e].is_up = false;
    at(now_ + 1ms * random_.below(600), [this, e] {
      backend& b = backends_[e];
      b = {.life = b.life + 1, .epoch = b.epoch};
    });
  }

  test::random_source random_;
  std::priority_queue<event> events_;
  std::uint64_t order_ = 0;
  time_point now_ = t0;
  std::vector<std::unique_ptr<side>> pickers_;
  std::vector<backend> backends_;
  std::uint32_t leader_ = 0;
  std::uint64_t epoch_ = 0;
  time_point term_until_{};
  std::uint64_t opened_ = 0;
  std::uint64_t last_ = 0;
};

TEST_CASE("each stream gets one answer, whatever befalls messages, endpoints and pickers") {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    CAPTURE(seed);
    world{seed}.run();
  }
}

}  // namespace
}  // namespace cohort::cluster::picker_faults_test
