// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/metric_page.hpp>

#include <cohort/core/version.hpp>

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace cohort::serve::metric_page_test {
namespace {

/// One row of each kind and owner.
struct few : metric_page {
  counter started{*this, {"started_total", "Starts"}};
  gauge level{*this, {.name = "level", .help = "Now", .by = counted_by::device}};
  counter ends{*this,
               {.name = "ends_total",
                .help = "Ends",
                .by = counted_by::model,
                .label = "how",
                .values = {"well", "badly"}}};
  histogram sizes{
      *this, {.name = "sizes", .help = "Sizes", .by = counted_by::pipeline, .buckets = {1, 4}}};
  text_counter words{*this, {.name = "words_total", .help = "Words", .label = "word"}};
};

TEST_CASE("a row is on the page with its help, before anything happened") {
  const few page;
  const std::string t = page.text();
  CHECK(t.find("# HELP started_total Starts\n# TYPE started_total counter\nstarted_total 0\n") !=
        std::string::npos);
  CHECK(t.find("ends_total{") == std::string::npos);  // There is no model.
  // What each page has: nothing is logged here.
  for (const char* reason : {"repeated", "no_room", "unwritable"}) {
    CAPTURE(reason);
    CHECK(t.find("\ncohort_log_lines_dropped_total{reason=\"" + std::string{reason} + "\"} 0\n") !=
          std::string::npos);
  }
}

TEST_CASE("rows have a series for each owner of their kind and each value of their label") {
  few page;
  page.add_owner(counted_by::model, 0, "a");
  page.add_owner(counted_by::model, 1, "b");
  page.add_owner(counted_by::device, 0, "7");
  page.add_owner(counted_by::pipeline, 1, "b");  // 0 is none.
  page.started.add();
  page.started.raise_to(5);
  page.ends.add(2, 1, 1);
  page.level.set(0.5, 0);
  page.sizes.observe(3, 1);
  page.words.add("yes");
  page.words.add("yes");
  const std::string t = page.text();
  const auto has = [&](const char* line) { return t.find(line) != std::string::npos; };
  CHECK(has("started_total 5\n"));
  CHECK(has("ends_total{how=\"badly\",model=\"b\"} 2\n"));
  CHECK(has("ends_total{how=\"well\",model=\"a\"} 0\n"));
  CHECK(has("level{device=\"7\"} 0.5\n"));
  CHECK(has("sizes_bucket{model=\"b\",le=\"1\"} 0\n"));
  CHECK(has("sizes_bucket{model=\"b\",le=\"4\"} 1\n"));
  CHECK_FALSE(has("sizes_count{model=\"a\"}"));
  CHECK(has("words_total{word=\"yes\"} 2\n"));
}

TEST_CASE("the series of an owner that goes leave the page with the last copy of it") {
  few page;
  page.expect_owners(counted_by::model, 2);
  const auto has = [&](const char* line) { return page.text().find(line) != std::string::npos; };
  auto a = page.find_owner(counted_by::model, "a");
  REQUIRE(a);
  CHECK(page.find_owner(counted_by::model, "a") == a);
  page.ends.add(3, a->index(), 0);
  auto b = page.find_owner(counted_by::model, "b");
  REQUIRE(b);
  CHECK(b->index() != a->index());
  CHECK_FALSE(page.find_owner(counted_by::model, "c"));  // Only two were expected.
  const auto held = a;
  a.reset();
  CHECK(has("ends_total{how=\"well\",model=\"a\"} 3\n"));  // A request may have it still.
  page.ends.add(1, held->index(), 0);
  CHECK(has("ends_total{how=\"well\",model=\"a\"} 4\n"));
  const std::uint64_t serial = b->serial();
  b.reset();
  CHECK_FALSE(has("model=\"b\""));
  CHECK(has("model=\"a\""));
  const auto c = page.find_owner(counted_by::model, "c");
  REQUIRE(c);
  CHECK(c->serial() != serial);  // It has the place of b, and none of what b counted.
  CHECK(has("ends_total{how=\"badly\",model=\"c\"} 0\n"));
}

TEST_CASE("owners that come and go while others are counted and the page is read") {
  few page;
  page.expect_owners(counted_by::model, 8);
  const auto steady = page.find_owner(counted_by::model, "steady");
  std::atomic<bool> is_over{false};
  std::thread reader{[&] {
    while (!is_over) static_cast<void>(page.text());
  }};
  std::vector<std::thread> all;
  for (int t = 0; t < 2; ++t) {
    all.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto o = page.find_owner(counted_by::model, i % 2 == 0 ? "x" : "y");
        page.ends.add(1, o->index(), 0);
        page.ends.add(1, steady->index(), 1);
      }
    });
  }
  for (std::thread& t : all) t.join();
  is_over = true;
  reader.join();
  const std::string t = page.text();
  CHECK(t.find("ends_total{how=\"badly\",model=\"steady\"} 400\n") != std::string::npos);
  CHECK(t.find("model=\"x\"") == std::string::npos);
  CHECK(t.find("model=\"y\"") == std::string::npos);
}

TEST_CASE("a gauge shows the labels of the last call alone") {
  struct : metric_page {
    changing_gauge places{*this, {"places", "Places"}};
  } page;
  page.places.show({{{{"at", "1"}}, 5}, {{{"at", "2"}}, 6}});
  page.places.show({{{{"at", "2"}}, 7}, {{{"at", "3"}}, 8}});
  const std::string t = page.text();
  CHECK(t.find("places{at=\"1\"}") == std::string::npos);
  CHECK(t.find("places{at=\"2\"} 7\n") != std::string::npos);
  CHECK(t.find("places{at=\"3\"} 8\n") != std::string::npos);
  page.places.show({});
  CHECK(page.text().find("places{") == std::string::npos);
}

/// The value of a row without labels.
double value_of(const metric_page& page, const std::string& name) {
  const std::string t = page.text();
  const std::size_t at = t.find("\n" + name + " ");
  REQUIRE(at != std::string::npos);
  return std::stod(t.substr(at + name.size() + 2));
}

TEST_CASE("each page tells what the process takes, and what it was built from") {
  const few page;
  CHECK(page.text().find(std::string{"version=\""} + version_string + "\"} 1\n") !=
        std::string::npos);
  CHECK(value_of(page, "process_start_time_seconds") > 1e9);  // Not since the machine's start.
  CHECK(value_of(page, "process_resident_memory_bytes") > 1 << 20);
  CHECK(value_of(page, "process_virtual_memory_bytes") >
        value_of(page, "process_resident_memory_bytes"));
  const double before = value_of(page, "process_cpu_seconds_total");
  for (volatile int i = 0; value_of(page, "process_cpu_seconds_total") <= before;) i = i + 1;
  const double files = value_of(page, "process_open_fds");
  const int more = dup(STDIN_FILENO);
  CHECK(value_of(page, "process_open_fds") == files + 1);
  close(more);
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(value_of(page, "process_max_fds") == static_cast<double>(limit.rlim_cur));
}

}  // namespace
}  // namespace cohort::serve::metric_page_test
