// SPDX-License-Identifier: Apache-2.0
// What a sweep keeps and prints.
#include <sim/sweep_results.hpp>

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

#include <formats/text.hpp>
#include <support/complaint.hpp>
#include <support/scratch_file.hpp>

namespace cohort::bench::sweep_results_test {
namespace {

sweep_draw draw(std::uint64_t seed, const char* noise, double adaptive, double tuned, double eager,
                double eager_dropping, double timeout) {
  return {.seed = seed,
          .name = "2 models",
          .noise = noise,
          .duration_s = 4.5,
          .least_requests = 1234,
          .runs = {{"adaptive", "drop-head", adaptive},
                   {"adaptive tuned", "drop-head", tuned},
                   {"eager", "head", eager},
                   {"eager", "drop-head", eager_dropping},
                   {"timeout:0.2", "head", timeout}}};
}

TEST_CASE("the best rival is named with its gather rule, and is the first of equals") {
  const sweep_draw d = draw(1, "clean", 90, 120, 80, 100, 100);
  CHECK(d.best_rival().policy == "eager");
  CHECK(d.best_rival().gather == "drop-head");
  CHECK(d.over_rivals(untuned_name) == 0.9);
  CHECK(d.over_rivals(tuned_name) == 1.2);
}

TEST_CASE("what is written is read, and a line that was cut short is dropped and made room for") {
  const std::string file = test::scratch("sweep.jsonl");
  CHECK(read_draws(file).empty());
  const std::string whole = to_line(draw(7, "clean", 90.5, 120, 80, 100, 1e-3)) +
                            to_line(draw(8, "sigma .2", 1, 2, 3, 4, 5));
  test::spill(file, whole + R"({"seed": 9, "dra)");
  for (int again = 0; again < 2; ++again) {
    const std::vector<sweep_draw> draws = read_draws(file);
    REQUIRE(draws.size() == 2);
    CHECK(to_line(draws[0]) + to_line(draws[1]) == whole);
    CHECK(draws[1].noise == "sigma .2");
    CHECK(draws[0].runs[0].goodput == 90.5);
    CHECK(test::slurp(file) == whole);
  }
  test::spill(file, whole + "{\"seed\": 9}\n");
  CHECK(test::gist_of<formats::input_error>([&] { (void)read_draws(file); }) ==
        file + ", line 3: $.draw: missing");
  std::remove(file.c_str());
}

TEST_CASE("tables have geometric means, the worst and its seed, by class") {
  // Tuned over the best rival: 2, 0.5 and 1.28; untuned: 1, 0.25 and 0.64. Nothing of draw 4.
  const std::vector<sweep_draw> draws{
      draw(3, "sigma .2", 64, 128, 100, 50, 10), draw(1, "clean", 100, 200, 50, 100, 10),
      draw(2, "clean", 25, 50, 100, 50, 10), draw(4, "clean", 5, 6, 0, 0, 0)};
  const std::string text = sweep_tables(draws);
  for (const char* line : {
           "| adaptive tuned | all | 3 | 1.086 | 0.500 | 2 | 2 |",  // The cube root of 1.28.
           "| adaptive tuned | clean | 2 | 1.000 | 0.500 | 2 | 1 |",
           "| adaptive tuned | with noise | 1 | 1.280 | 1.280 | 3 | 1 |",
           "| adaptive tuned | sigma .2 | 1 | 1.280 | 1.280 | 3 | 1 |",
           "| adaptive | all | 3 | 0.543 | 0.250 | 2 | 1 |",  // That of 0.16.
           "| 1 | 2 models | 4.5 | 1234 | eager | drop-head | 100 | 100 | 200 | 2.000 |",
           "| 4 | 2 models | 4.5 | 1234 | eager | head | 0 | 5 | 6 | no rate |",
       }) {
    INFO(text);
    CHECK(text.find(std::string{line} + '\n') != std::string::npos);
  }
  CHECK(text.find("| 1 | 2 models") < text.find("| 2 | 2 models"));
}

}  // namespace
}  // namespace cohort::bench::sweep_results_test
