// SPDX-License-Identifier: Apache-2.0
#include <formats/pairs_file.hpp>

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <formats/profile_dir.hpp>
#include <formats/text.hpp>
#include <support/profile_folder.hpp>
#include <support/scratch_file.hpp>

namespace cohort::formats {
namespace {
using packing::model_profile;
using factors = std::vector<double>;

const std::string header =
    "model,batch,partition_pct,other,other_batch,other_partition_pct,alone_ms,beside_ms,factor,"
    "noise,turns,device\n";

std::vector<model_profile> three() {
  return {{.name = "a", .slo_ms = 1}, {.name = "b, c", .slo_ms = 1}, {.name = "d", .slo_ms = 1}};
}
measured_neighbour row(std::size_t self, std::size_t other, double factor) {
  return {.self = {self, 1, 50}, .other = {other, 8, 50}, .factor = factor};
}

TEST_CASE("what is written is read") {
  const std::vector<measured_neighbour> rows{{.self = {0, 1, 40},
                                              .other = {1, 8, 60},
                                              .alone_ms = 1.25,
                                              .beside_ms = 1.5,
                                              .factor = 1.2,
                                              .noise = 0.01,
                                              .turns = 5,
                                              .device = "host, 2 cores"}};
  const std::string file = test::scratch("pairs.csv");
  const std::string text = pairs_csv(rows, three());
  CHECK(text == header + "a,1,40,\"b, c\",8,60,1.25,1.5,1.2,0.01,5,\"host, 2 cores\"\n");
  test::spill(file, text);
  const auto read = read_pairs(file, three());
  REQUIRE(read.size() == 1);
  CHECK(read[0].self == rows[0].self);
  CHECK(read[0].other == rows[0].other);
  CHECK(read[0].device == rows[0].device);
  CHECK(pairs_csv(read, three()) == text);
  std::remove(file.c_str());
}
TEST_CASE("bad rows are named") {
  const std::string file = test::scratch("pairs.csv");
  const auto refuses = [&](const std::string& text, const std::string& complaint) {
    test::spill(file, text);
    CAPTURE(text);
    CHECK_THROWS_WITH_AS((void)read_pairs(file, three()), (file + complaint).c_str(), input_error);
  };
  refuses("model\n", ": line 1: missing: expected a column batch");
  refuses(header + "a,1,50,d,1",
          ": line 2: a row of 5 is not allowed: expected 12 fields, as in the header");
  refuses(header + "x,1,50,d,1,50,1,1,1,0,5,host\n",
          ": line 2, model: \"x\" is not allowed: expected a model of slo.csv: these pairs are of "
          "other models");
  refuses(header + "a,1,50,d,1,50,1,1,0,0,5,host\n",
          ": line 2, factor: 0 is not allowed: expected a number above 0 and at most 1000000");
  refuses(header + "a,1,101,d,1,50,1,1,1,0,5,host\n",
          ": line 2, partition_pct: 101 is not allowed: expected an integer from 1 to 100");
  std::remove(file.c_str());
}
TEST_CASE("a pair counts with the largest factor measured of it, at least 1") {
  auto models = three();
  const auto note = plan_by_pairs(
      models, std::vector{row(0, 1, 1.2), row(0, 1, 1.4), row(1, 0, 0.9), row(0, 0, 1),
                          row(1, 1, 1.1), row(2, 2, 1.05), row(0, 2, 1.3), row(2, 0, 1.6),
                          row(1, 2, 1.15), row(2, 1, 1.25)});
  CHECK(models[0].beside == factors{1, 1.4, 1.3});
  CHECK(models[1].beside == factors{1, 1.1, 1.15});
  CHECK(models[2].beside == factors{1.6, 1.25, 1.05});
  CHECK(note.empty());
}
TEST_CASE("a pair never measured counts with the largest factor of either model, and is named") {
  auto models = three();
  // a suffered 1.5 from b, b suffered 1.1: neither met d, nor itself.
  const auto note = plan_by_pairs(models, std::vector{row(0, 1, 1.5), row(1, 0, 1.1)});
  CHECK(models[0].beside == factors{1.5, 1.5, 1.5});
  CHECK(models[1].beside == factors{1.1, 1.5, 1.5});
  CHECK(models[2].beside == factors{1.5, 1.5, 1.5});  // Itself: the largest there is.
  CHECK(note ==
        "never measured side by side, so planned with the largest factor measured of either "
        "model: a beside a 1.5, a beside d 1.5, b, c beside b, c 1.5, b, c beside d 1.5, d beside "
        "a 1.5, d beside b, c 1.5, d beside d 1.5");
  // Where both usages are known the fit tells, and nothing is guessed.
  for (model_profile& m : models) m.usage = {{1, 0.1, 0.1}};
  CHECK(plan_by_pairs(models, std::vector{row(0, 1, 1.5)}).empty());
}
TEST_CASE("a folder is planned by its fit, by pairs where there is none, and by both") {
  const test::profile_folder folder;
  const auto read = [&folder] { return read_profile_dir(folder.path(), true); };
  const std::string pairs =
      header + "a,1,50,b,1,50,4,6,1.5,0,5,host\nb,1,50,a,1,50,4,5,1.25,0,5,h\n";
  folder.write("pairs.csv", pairs);
  CHECK(read().models[0].beside.empty());  // Usage is known of both.
  CHECK(read().interference->l2_other == 1);
  // Without rows of b in util.csv: a beside a by the fit, what concerns b by pairs.
  folder.write("util.csv", "model,batch,l2_util_pct,dram_util_pct\na,1,20,40\n");
  CHECK(read().models[0].beside == factors{1.5, 1.5});
  CHECK(read().models[1].beside == factors{1.25, 1.5});
  CHECK(read().models[1].usage.empty());
  CHECK(read().repairs.back().ends_with("of either model: b beside b 1.5"));
  std::remove((folder.path() + "/util.csv").c_str());
  CHECK(read().interference->l2_other == 0);
  CHECK(read().repairs.back().ends_with("of either model: a beside a 1.5, b beside b 1.5"));
  folder.write("util.csv", "model,batch,l2_util_pct,dram_util_pct\na,1,20,40\nb,1,20,40\n");
  std::remove((folder.path() + "/interference.csv").c_str());
  CHECK(read().models[0].usage.empty());  // No fit to use it.
  CHECK(read().models[0].beside == factors{1.5, 1.5});
  std::remove((folder.path() + "/pairs.csv").c_str());
  const std::string complaint = folder.path() +
                                "/interference.csv: missing: expected what `cohort interference` "
                                "measures";
  CHECK_THROWS_WITH_AS(read(), complaint.c_str(), input_error);
}
TEST_CASE("usage is read without a fit, of the models that have any") {
  const test::profile_folder folder;
  folder.write("util.csv", "model,batch,l2_util_pct,dram_util_pct\na,1,20,40\n");
  const profile_dir p = read_profile_dir_with_usage(folder.path());
  CHECK(p.models[0].usage.size() == 1);
  CHECK(p.models[1].usage.empty());
  CHECK_FALSE(p.interference.has_value());
}

}  // namespace
}  // namespace cohort::formats
