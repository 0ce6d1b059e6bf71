// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/metric_page.hpp>

#include <doctest/doctest.h>

#include <string>

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

}  // namespace
}  // namespace cohort::serve::metric_page_test
