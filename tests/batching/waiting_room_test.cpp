// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/waiting_room.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::batching::waiting_room_test {
namespace {
using namespace std::chrono_literals;
using tags = std::vector<std::uint64_t>;

tags tags_of(const std::vector<staged_request>& all) {
  tags t;
  for (const staged_request& r : all) t.push_back(r.tag);
  return t;
}
time_point at(duration d) { return time_point{} + d; }
staged_request request(std::uint64_t tag, std::uint32_t bucket = 0) {
  return {.tag = tag, .bucket = bucket};
}

TEST_CASE("without a window all that wait may enter, up to the bound") {
  waiting_room room{{.max_waiting = 2, .batch_max = 4}};
  CHECK(room.push(request(1), at(0ms)));
  CHECK(room.push(request(2), at(0ms)));
  CHECK_FALSE(room.push(request(3), at(0ms)));
  CHECK(room.eligible() == 2);
  CHECK(room.closes_at() == never);
}
TEST_CASE("a window opens with a request, and closes in time or when a batch is full") {
  waiting_room room{{.batch_max = 3, .window = 5ms}};
  room.push(request(1), at(10ms));
  room.push(request(2), at(12ms));
  CHECK(room.is_open());
  CHECK(room.closes_at() == at(15ms));
  CHECK(room.eligible() == 0);
  room.advance(at(14ms));
  CHECK(room.eligible() == 0);
  room.advance(at(15ms));
  CHECK(room.eligible() == 2);
  CHECK_FALSE(room.is_open());
  for (std::uint64_t t = 3; t <= 5; ++t) room.push(request(t), at(16ms));
  CHECK(room.eligible() == 5);  // Three more: the second window was full.
  CHECK_FALSE(room.is_open());
}
TEST_CASE("a window whose last request is cancelled is not open any more") {
  waiting_room room{{.batch_max = 8, .window = 5ms}};
  room.push(request(1), at(0ms));
  room.advance(at(5ms));
  room.push(request(2), at(6ms));
  REQUIRE(room.cancel(2));
  CHECK_FALSE(room.is_open());
  room.push(request(3), at(9ms));
  CHECK(room.closes_at() == at(14ms));  // Not that of the request that has gone.
  REQUIRE(room.cancel(1));
  CHECK(room.eligible() == 0);
  CHECK(room.is_open());
  CHECK_FALSE(room.cancel(1));
}
TEST_CASE("who is gathered depends on the bucket and the order") {
  const auto gathered = [](fill_order fill, std::uint32_t count) {
    waiting_room room{{.batch_max = 8, .buckets = 3}};
    const std::uint32_t buckets[] = {1, 0, 2, 1, 0};
    for (std::uint64_t t = 0; t < 5; ++t) room.push(request(t, buckets[t]), {});
    std::vector<staged_request> into;
    room.gather(count, 1, fill, into);
    CHECK(room.list().size() == 5 - into.size());
    return tags_of(into);
  };
  CHECK(gathered(fill_order::oldest, 3) == tags{0, 1, 3});
  CHECK(gathered(fill_order::oldest, 9) == tags{0, 1, 3, 4});
  CHECK(gathered(fill_order::same_bucket, 9) == tags{0, 3});
  CHECK(gathered(fill_order::longest_first, 3) == tags{0, 3, 1});
}
TEST_CASE("who is gathered stands behind those who were gathered before") {
  waiting_room room{{.batch_max = 8}};
  for (std::uint64_t t = 0; t < 4; ++t) room.push(request(t), {});
  std::vector<staged_request> into;
  room.gather(2, 0, fill_order::oldest, into);
  room.gather(1, 0, fill_order::longest_first, into);
  CHECK(tags_of(into) == tags{0, 1, 2});
}
TEST_CASE("only those whose window has closed are gathered") {
  waiting_room room{{.batch_max = 8, .window = 1ms}};
  room.push(request(1), at(0ms));
  room.advance(at(1ms));
  room.push(request(2), at(1ms));
  std::vector<staged_request> into;
  room.gather(8, 0, fill_order::oldest, into);
  CHECK(tags_of(into) == tags{1});
  CHECK(room.is_open());
}
TEST_CASE("options outside their range are refused") {
  CHECK(test::gist_of<config_error>([&] { (void)waiting_room({.max_waiting = 0}); }) ==
        "pipeline: max_waiting ... at least 1");
  CHECK(test::gist_of<config_error>([&] { (void)waiting_room({.window = -1ns}); }) ==
        "pipeline: window ... at least 0");
}

/// The same, by a flag on each request.
struct plain_room {
  struct entry {
    staged_request request;
    bool closed;
  };
  std::deque<entry> all;
  time_point closes = never;

  void close() {
    for (entry& e : all) e.closed = true;
    closes = never;
  }
  [[nodiscard]] std::size_t open() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(all, [](const entry& e) { return !e.closed; }));
  }
};

TEST_CASE("the rate is that of the last few hundred arrivals, and falls while none comes") {
  waiting_room room{{.batch_max = 8}};
  const auto arrive = [&](duration now) {
    room.push(request(0), at(now));
    std::vector<staged_request> into;
    room.gather(1, 0, fill_order::oldest, into);
  };
  for (int i = 0; i < 15; ++i) arrive(i * 2ms);
  CHECK(room.rate(at(28ms)) == 0);  // Not known from so few.
  arrive(30ms);
  CHECK(room.rate(at(30ms)) == doctest::Approx(0.5));
  CHECK(room.rate(at(46ms)) == doctest::Approx(0.5));  // Eight gaps may be chance.
  CHECK(room.rate(at(30ms + 528ms)) == doctest::Approx(0.25));
  for (int i = 0; i < 2000; ++i) arrive(1s + i * 1ms);
  CHECK(room.rate(at(2999ms)) == doctest::Approx(1).epsilon(0.02));
}
TEST_CASE("the rate of requests that came at one instant is not known") {
  waiting_room room{{.batch_max = 64}};
  for (int i = 0; i < 32; ++i) room.push(request(0), at(1ms));
  CHECK(room.rate(at(1ms)) == 0);
}
TEST_CASE("the mix of buckets is that of the last few hundred arrivals") {
  waiting_room room{{.max_waiting = 10'000, .batch_max = 8, .buckets = 2}};
  for (int i = 0; i < 5000; ++i) room.push(request(0, 0), at(1ms));
  for (int i = 0; i < 2000; ++i) room.push(request(0, i % 4 == 0 ? 0 : 1), at(1ms));
  const auto mix = room.mix();
  CHECK(mix[0] + mix[1] < 512);
  CHECK(mix[1] / static_cast<double>(mix[0] + mix[1]) == doctest::Approx(0.75).epsilon(0.05));
}
TEST_CASE("random operations agree with a flag on each request") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const bool has_window = random.one_in(2);
    const auto batch_max = static_cast<std::uint32_t>(1 + random.below(5));
    waiting_room_options o{.max_waiting = 12, .batch_max = batch_max, .buckets = 3};
    if (has_window) o.window = 3ms;
    waiting_room room{o};
    plain_room plain;
    time_point now{};
    for (std::uint64_t step = 0; step < 400; ++step) {
      now += 1ms * static_cast<int>(random.below(3));
      if (plain.closes <= now) plain.close();
      room.advance(now);
      switch (random.below(4)) {
        case 0:
        case 1: {
          const staged_request r = request(step, static_cast<std::uint32_t>(random.below(3)));
          const bool taken = plain.all.size() < 12;
          CHECK(room.push(r, now) == taken);
          if (!taken) break;
          if (has_window && plain.closes == never) plain.closes = now + 3ms;
          plain.all.push_back({r, !has_window});
          if (has_window && plain.open() == batch_max) plain.close();
          break;
        }
        case 2: {
          if (plain.all.empty()) break;
          const std::size_t i = random.below(plain.all.size());
          REQUIRE(room.cancel(plain.all[i].request.tag));
          plain.all.erase(plain.all.begin() + static_cast<std::ptrdiff_t>(i));
          if (plain.open() == 0) plain.closes = never;
          break;
        }
        default: {
          const auto count = static_cast<std::uint32_t>(1 + random.below(4));
          const auto bucket = static_cast<std::uint32_t>(random.below(3));
          const auto fill = static_cast<fill_order>(random.below(3));
          tags expected;
          const auto pick = [&](std::uint32_t least, std::uint32_t most) {
            for (auto e = plain.all.begin(); e != plain.all.end() && expected.size() < count;) {
              const bool fits =
                  e->closed && e->request.bucket >= least && e->request.bucket <= most;
              if (fits) expected.push_back(e->request.tag);
              e = fits ? plain.all.erase(e) : e + 1;
            }
          };
          if (fill == fill_order::oldest) pick(0, bucket);
          if (fill == fill_order::same_bucket) pick(bucket, bucket);
          if (fill == fill_order::longest_first) {
            for (std::uint32_t b = bucket + 1; b-- > 0;) pick(b, b);
          }
          std::vector<staged_request> into;
          room.gather(count, bucket, fill, into);
          CHECK(tags_of(into) == expected);
        }
      }
      CHECK(room.list().size() == plain.all.size());
      CHECK(room.eligible() == plain.all.size() - plain.open());
      CHECK(room.closes_at() == plain.closes);
    }
  }
}

}  // namespace
}  // namespace cohort::batching::waiting_room_test
