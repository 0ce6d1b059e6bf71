// SPDX-License-Identifier: Apache-2.0
// The text service in threads over a device under random faults: it hangs until it is let go, fails
// and is slow, in jobs of prompts, iterations and calls; clients come on several threads and
// cancel. Nothing is asserted that depends on how fast any of it is: each text that was accepted
// has one last piece, its bytes are right as far as they go, and when all is well again texts are
// served.
#include <chat/text_service.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chat/chat_metrics.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <support/fault_gate.hpp>
#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

#include "service_fixture.hpp"

namespace cohort::chat::service_chaos_test {
namespace {
using namespace std::chrono_literals;
using namespace test_support;
using test::fault_gate;

/// What was heard of each text.
class ear final : public piece_listener {
 public:
  struct heard {
    std::string text;
    std::uint64_t produced = 0;
    std::optional<kv::finish_reason> finished;
    device_trouble reason = device_trouble::none;
  };
  void said(std::vector<piece> pieces) override {
    {
      const std::lock_guard lock{mutex_};
      for (piece& p : pieces) {
        heard& h = texts_[{p.of, p.choice}];
        CHECK_FALSE(h.finished);  // Nothing comes after the last one.
        CHECK(p.produced >= h.produced);
        h.text += p.text;
        h.produced = p.produced;
        h.finished = p.finished;
        h.reason = p.trouble;
        ended_ += p.finished ? 1U : 0U;
      }
    }
    changed_.notify_one();
  }
  void wait_for(std::size_t ended) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return ended_ >= ended; });
  }
  [[nodiscard]] heard of(const std::shared_ptr<job>& j, std::uint32_t choice) {
    const std::lock_guard lock{mutex_};
    return texts_[{j, choice}];
  }
  [[nodiscard]] std::size_t ended() {
    const std::lock_guard lock{mutex_};
    return ended_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::shared_ptr<job>, std::uint32_t>, heard> texts_;
  std::size_t ended_ = 0;
};

struct totals {
  std::map<kv::finish_reason, std::size_t> ways;
  std::size_t refused = 0;
  std::size_t without_device = 0;
};

/// A client's jobs that were accepted.
struct client {
  std::vector<std::shared_ptr<job>> jobs;
  std::size_t texts = 0;
  std::size_t refused = 0;
};

void ask_at_will(text_service& texts, client& me, std::uint64_t seed) {
  test::random_source random{seed};
  for (int i = 0; i < 60; ++i) {
    const auto j = std::make_shared<job>();
    for (std::uint32_t n = 1 + random.below(3U); n > 0; --n) {
      choice& c = j->choices.emplace_back();
      c.index = static_cast<std::uint32_t>(j->choices.size() - 1);
      c.text.resize(1 + random.below(40U));
      for (kv::token_id& t : c.text) t = static_cast<kv::token_id>(random.below(50));
      c.max_new = 1 + random.below(12U);
      c.priority = static_cast<std::uint8_t>(random.below(3U));
    }
    if (texts.submit(j)) {
      me.jobs.push_back(j);
      me.texts += j->choices.size();
    } else {
      ++me.refused;
    }
    if (!me.jobs.empty() && random.one_in(4)) {
      texts.cancel(me.jobs[random.below(me.jobs.size())]);
    }
    std::this_thread::yield();
  }
}

/// What is out of a text is its beginning; all of it, if it was not ended.
void check(const choice& c, const ear::heard& h) {
  REQUIRE(h.finished.has_value());
  std::string whole;
  if (h.produced > 0) {
    for (const kv::token_id t : llama::truth(c)) whole += static_cast<char>(t);
  }
  CHECK(h.text == whole.substr(0, h.text.size()));
  if (h.finished == kv::finish_reason::length) CHECK(h.text.size() == c.max_new);
}

void run(std::uint64_t seed, totals& all) {
  test::random_source random{seed};
  // In this order: whoever speaks goes before who hears.
  std::vector<client> clients(3);
  ear listener;
  chat_metrics counters{small.kv_bytes};
  fault_gate prefill;
  fault_gate iteration;
  service_options o{.generator = small,
                    .watch = {.health = {.floor = 2ms, .first_probe = 1ms, .longest_probe = 4ms},
                              .first = 10ms,
                              .until_texts_end = 5ms}};
  o.generator.kv_bytes = 1000;  // So that texts are preempted.
  auto loop = std::make_unique<scripted_loop>(o.queued());
  loop->backend().on_wait = [&] { prefill.pass_late(); };
  loop->backend().on_start = [&] { prefill.pass(); };
  loop->backend().on_iterate = [&] { iteration.pass(); };
  loop->backend().on_execute = [&] { iteration.pass(); };
  loop->backend().patience = random.below(3U);
  auto texts =
      std::make_unique<text_service>(std::move(loop), config(), words, o, listener, counters);
  const auto heal = [&] {
    prefill.set(fault_gate::kind::none);
    iteration.set(fault_gate::kind::none);
  };

  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < clients.size(); ++t) {
    threads.emplace_back([&, t] { ask_at_will(*texts, clients[t], seed * clients.size() + t); });
  }
  for (int step = 0; step < 12; ++step) {
    const auto kind = static_cast<fault_gate::kind>(random.below(4));
    (random.one_in(2) ? prefill : iteration).set(kind);
    // Now and then until it is noticed, if there is anything to notice it by.
    if (kind != fault_gate::kind::none && random.one_in(2)) {
      for (int i = 0; i < 1000 && texts->trouble() == device_trouble::none; ++i) {
        std::this_thread::yield();
      }
    }
    if (random.one_in(3)) heal();
  }
  for (std::thread& t : threads) t.join();
  heal();
  std::size_t accepted = 0;
  for (const client& c : clients) accepted += c.texts;
  CHECK_FALSE(texts->is_broken());
  const bool waits = !random.one_in(4);
  if (waits) {
    listener.wait_for(accepted);
    CHECK(listener.ended() == accepted);
    wait_until([&] { return texts->open() == 0; });
    // Until the device is known to be well again.
    for (;;) {
      const auto j = job_of({5}, 3);
      wait_until([&] { return texts->submit(j); });
      listener.wait_for(++accepted);
      if (listener.of(j, 0).finished == kv::finish_reason::length) break;
    }
    wait_until([&] { return texts->open() == 0; });
  }
  texts.reset();  // Perhaps in the middle of it.
  for (const client& c : clients) {
    all.refused += c.refused;
    for (const auto& j : c.jobs) {
      for (const choice& each : j->choices) {
        const ear::heard h = listener.of(j, each.index);
        if (!h.finished) {
          CHECK_FALSE(waits);
          continue;
        }
        check(each, h);
        ++all.ways[*h.finished];
        if (h.reason != device_trouble::none) ++all.without_device;
      }
    }
  }
}

TEST_CASE("in threads, too, each text has one end, and the service goes on when its device does") {
  totals all;
  for (std::uint64_t seed = 1; seed <= test::seeds(60); ++seed) {
    CAPTURE(seed);
    run(seed, all);
  }
  CHECK(all.ways[kv::finish_reason::length] > 0);
  CHECK(all.ways[kv::finish_reason::error] > 0);
  CHECK(all.ways[kv::finish_reason::cancelled] > 0);
}

}  // namespace
}  // namespace cohort::chat::service_chaos_test
