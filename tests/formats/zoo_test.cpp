// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <formats/zoo/zoo.hpp>

#include <algorithm>
#include <string_view>

namespace cohort::formats::zoo_test {
namespace {

const zoo_row& row(std::string_view which, std::string_view name) {
  const auto rows = zoo(which);
  const auto found = std::ranges::find(rows, name, &zoo_row::name);
  REQUIRE(found != rows.end());
  return *found;
}

TEST_CASE("the zoos are the paper's tables") {
  CHECK(zoo("1080ti").size() == 35);
  CHECK(zoo("a100").size() == 37);
  CHECK(zoo("h100").empty());
  CHECK(row("a100", "DenseNet121").alpha_ms == 0.054);
  CHECK(row("a100", "EfficientNetB7").beta_ms == 2.751);
  CHECK(row("a100", "SSDMobilenet").slo_ms == 164);
  CHECK(row("1080ti", "NASNetMobile").beta_ms == 14.348);
  CHECK(row("1080ti", "BERT").slo_ms == 56);
}

TEST_CASE("the appendix's promise holds: each model meets its SLO with a batch of 4, within 1 ms") {
  for (const char* which : {"1080ti", "a100"}) {
    for (const zoo_row& r : zoo(which)) {
      CAPTURE(r.name);
      CHECK(2 * (4 * r.alpha_ms + r.beta_ms) <= r.slo_ms + 1);
    }
  }
}

}  // namespace
}  // namespace cohort::formats::zoo_test
