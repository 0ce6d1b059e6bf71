// SPDX-License-Identifier: Apache-2.0
#include <inference/load_table.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::inference::load_table_test {
namespace {
using namespace std::chrono_literals;
using names = std::vector<std::string>;
using phase = load_table::phase;
constexpr time_point t0{};

TEST_CASE("loads begin in the order in which they are asked for, no more than the bound at once") {
  load_table t{{.time = 100s, .at_once = 2}};
  t.ask("c", t0);
  t.ask("a", t0 + 1s);
  t.ask("b", t0 + 2s);
  CHECK(t.begin() == "c");
  CHECK(t.begin() == "a");
  CHECK_FALSE(t.begin());
  CHECK(t.count(phase::running) == 2);
  CHECK(t.wanted() == names{"a", "b", "c"});
  CHECK(t.end("a").since == t0 + 1s);
  CHECK(t.begin() == "b");
}

TEST_CASE("a model whose load waits or runs is refused another one, with how long that has taken") {
  load_table t{{}};
  CHECK_FALSE(t.against("m", t0));
  t.ask("m", t0);
  CHECK_FALSE(t.against("other", t0));
  REQUIRE(t.against("m", t0 + 12s));
  CHECK(t.against("m", t0 + 12s)->status == 409);
  CHECK(test::gist(t.against("m", t0 + 12s)->why) == "model 'm' ... 12 s ... again");
  CHECK(t.begin() == "m");
  CHECK(t.against("m", t0)->status == 409);
  t.end("m");
  CHECK_FALSE(t.against("m", t0));
}

TEST_CASE("a load is overdue when its time is over, whether it runs or waits") {
  load_table t{{.time = 10s, .at_once = 1}};
  CHECK_FALSE(t.next());
  t.ask("runs", t0);
  t.ask("waits", t0 + 3s);
  CHECK(t.begin() == "runs");
  CHECK(t.next() == t0 + 10s);
  CHECK(t.overdue(t0 + 10s - 1ns).empty());
  CHECK(t.overdue(t0 + 10s) == names{"runs"});
  CHECK(t.overdue(t0 + 13s) == names{"runs", "waits"});
  CHECK(t.abandon("runs"));
  CHECK_FALSE(t.abandon("runs"));  // Nobody waits for it any more.
  CHECK(t.next() == t0 + 13s);
  CHECK(t.overdue(t0 + 20s) == names{"waits"});
  CHECK(t.abandon("waits"));
  CHECK(t.find("waits") == nullptr);  // It had no thread.
  CHECK_FALSE(t.abandon("nobody"));
}

TEST_CASE(
    "an abandoned load leaves its place to others, and keeps its own model out until it ends") {
  load_table t{{.time = 10s, .at_once = 1}};
  t.ask("stuck", t0);
  CHECK(t.begin() == "stuck");
  CHECK(t.abandon("stuck"));
  t.ask("other", t0 + 11s);
  CHECK(t.begin() == "other");
  REQUIRE(t.against("stuck", t0 + 40s));
  CHECK(t.against("stuck", t0 + 40s)->status == 409);
  CHECK(test::gist(t.against("stuck", t0 + 40s)->why) ==
        "model 'stuck': ... abandoned ... 40 s ... restart");
  CHECK(t.wanted() == names{"other"});
  CHECK(t.end("stuck").is == phase::abandoned);
  CHECK_FALSE(t.against("stuck", t0 + 40s));
}

TEST_CASE("with as many abandoned loads as are allowed no other one may be asked for") {
  load_table t{{.abandoned = 2}};
  for (const char* name : {"a", "b"}) {
    CHECK_FALSE(t.against(name, t0));
    t.ask(name, t0);
    CHECK(t.begin() == name);
    t.abandon(name);
  }
  REQUIRE(t.against("c", t0));
  CHECK(t.against("c", t0)->status == 503);
  CHECK(test::gist(t.against("c", t0)->why) == "2 loads ... abandoned ...");
  t.end("a");
  CHECK_FALSE(t.against("c", t0));
}

TEST_CASE("a load that runs is slow after a while, which is told once of each") {
  load_table t{{.slow = 10s, .at_once = 2}};
  t.ask("a", t0);
  CHECK_FALSE(t.next());  // It waits.
  CHECK(t.begin() == "a");
  t.ask("b", t0 + 1s);
  CHECK(t.begin() == "b");
  t.ask("waits", t0 + 2s);
  CHECK(t.next() == t0 + 10s);
  CHECK(t.slow(t0 + 10s - 1ns).empty());
  CHECK(t.slow(t0 + 10s) == names{"a"});
  CHECK(t.next() == t0 + 11s);
  CHECK(t.abandon("b"));
  CHECK(t.slow(t0 + 20s).empty());
  CHECK(t.begin() == "waits");
  CHECK(t.slow(t0 + 20s) == names{"waits"});
  CHECK_FALSE(t.next());
  t.end("a");
  t.ask("a", t0 + 21s);  // Another load.
  CHECK(t.begin() == "a");
  CHECK(t.next() == t0 + 31s);
}

TEST_CASE("without a limit of time no load is ever overdue") {
  load_table t{{.slow = unbounded}};
  t.ask("m", t0);
  CHECK(t.begin() == "m");
  CHECK_FALSE(t.next());
  CHECK(t.overdue(t0 + 1'000'000s).empty());
}

}  // namespace
}  // namespace cohort::inference::load_table_test
