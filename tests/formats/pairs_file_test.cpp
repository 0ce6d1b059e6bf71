// SPDX-License-Identifier: Apache-2.0
#include <formats/pairs_file.hpp>

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <formats/profile_dir.hpp>
#include <formats/text.hpp>
#include <support/complaint.hpp>
#include <support/profile_folder.hpp>
#include <support/scratch_file.hpp>

namespace cohort::formats::pairs_file_test {
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
    CHECK(test::gist_of<input_error>([&] { (void)read_pairs(file, three()); }) == file + complaint);
  };
  refuses("model\n", ": line 1, batch: missing");
  refuses(header + "a,1,50,d,1", ": line 2: bad value");
  refuses(header + "x,1,50,d,1,50,1,1,1,0,5,host\n", ": line 2, model: bad value");
  refuses(header + "a,1,50,d,1,50,1,1,0,0,5,host\n", ": line 2, factor: bad value");
  refuses(header + "a,1,50,d,1,50,1,1000,1000,0,5,host\n", ": line 2, factor: bad value");
  refuses(header + "a,1,101,d,1,50,1,1,1,0,5,host\n", ": line 2, partition_pct: bad value");
  std::remove(file.c_str());
}
TEST_CASE("a factor is about beside_ms / alone_ms, as far as noise allows") {
  const auto complaint = [](const std::string& times) {
    try {
      (void)parse_pairs("p.csv", header + "a,1,50,d,1,50," + times + ",5,host\n", three());
    } catch (const input_error& e) {
      return test::gist(e.what());
    }
    return test::gist{"none"};
  };
  CHECK(complaint("4,6,0.375,0") == "none");
  CHECK(complaint("4,6,6,0") == "none");
  CHECK(complaint("4,6,6.1,0") == "p.csv: line 2, factor: bad value");
  CHECK(complaint("4,6,7.4,0.25") == "none");  // Up to 5 times 1.5.
  CHECK(complaint("4,6,0.29,0.25").starts_with("p.csv: line 2, factor: bad value"));
}
TEST_CASE("two partitions of one device are at most all of it") {
  const auto parse = [](const std::string& sizes) {
    return parse_pairs("p.csv", header + "a,1,80,d,1," + sizes + ",4,6,1.5,0,5,host\n", three());
  };
  CHECK(parse("20").size() == 1);
  CHECK(test::gist_of<input_error>([&] { (void)parse("21"); }) ==
        "p.csv: line 2, other_partition_pct: bad value");
}
TEST_CASE("factors that nothing explains are not believed") {
  const auto believed = [](double beside_ms, double factor, double noise = 0) {
    return is_believable({.self = {},
                          .other = {},
                          .alone_ms = 1,
                          .beside_ms = beside_ms,
                          .factor = factor,
                          .noise = noise});
  };
  CHECK(believed(1.5, 0.375));
  CHECK_FALSE(believed(1.5, 0.374));
  CHECK(believed(1.5, 6));
  CHECK_FALSE(believed(1.5, 6.01));
  CHECK(believed(1.5, 12, 1));
  CHECK_FALSE(believed(1.5, 13, 1000));
  CHECK(believed(0.1, 0.1));
  CHECK_FALSE(believed(0.1, 0.099));
  CHECK(believed(100, 100));
  CHECK_FALSE(believed(100, 101));
}
TEST_CASE("each side of a case has one row, of equal sides two, all of one device") {
  const auto complaint = [](const std::string& rows) {
    try {
      (void)parse_pairs("p.csv", header + rows, three());
    } catch (const input_error& e) {
      return test::gist(e.what());
    }
    return test::gist{"none"};
  };
  const std::string here = ",1,1,1,0,5,host\n";
  const std::string pair = "a,1,50,d,1,50" + here + "d,1,50,a,1,50" + here;
  const std::string self = "a,1,50,a,1,50" + here;
  CHECK(complaint(pair + self + self) == "none");
  CHECK(complaint(pair + "a,2,50,d,1,50" + here + "a,1,40,d,1,50" + here) == "none");
  CHECK(complaint(pair + pair) == "p.csv: line 4, model: bad value");
  CHECK(complaint(pair + self + self + self) == "p.csv: line 6, model: bad value");
  CHECK(complaint(pair + "a,1,50,a,1,50,1,1,1,0,5,moon\n") == "p.csv: line 4, device: bad value");
}
TEST_CASE("noise that is more than what was measured is told in one line") {
  warnings told;
  const std::string from = header + "a,1,50,d,1,50,1,1,1,1,5,host\n";
  (void)parse_pairs("p.csv", from, three(), &told);
  CHECK(told.empty());
  (void)parse_pairs("p.csv",
                    from + "d,1,50,a,1,50,1,1,1,1.5,5,host\na,1,50,a,1,50,1,1,1,1.2,5,host\n",
                    three(), &told);
  CHECK(test::gist{told} == "p.csv: ... noise ... 2 of 3 rows ... line 3 ... 150 %");
}
TEST_CASE("a fit that tells what cannot be of its models is named") {
  std::vector<model_profile> models{
      {.name = "a", .latency = {{1, 50, 1}, {1, 100, 1}}, .usage = {{1, 0.2, 0.4}}},
      {.name = "b", .latency = {{1, 50, 1}, {1, 80, 1}}, .usage = {{1, 0.6, 0}, {8, 0.8, 0}}},
      {.name = "c", .latency = {{1, 20, 1}}}};
  // On halves b adds 0.3 or 0.4 of l2 and a 0.1: nothing else fits a device, and of c nothing is
  // known.
  const auto told = [&models](double l2_other, double constant) {
    return unbelievable_factor({.l2_other = l2_other, .constant = constant}, models);
  };
  CHECK_FALSE(told(1, 1));
  CHECK_FALSE(told(1, 0));
  CHECK_FALSE(told(200, 20));
  const auto low = told(1, -5);
  REQUIRE(low);
  CHECK(low->factor == doctest::Approx(-4.9));
  CHECK(low->of == "a at size 50 beside a at size 50");
  const auto high = told(200, 21);
  REQUIRE(high);
  CHECK(high->factor == doctest::Approx(101));
  CHECK(high->of == "a at size 50 beside b at size 50");
  models.resize(1);
  models[0].latency = {{1, 100, 1}};
  CHECK_FALSE(told(1, -5));  // Nothing fits beside it.
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
  CHECK(test::gist{note} ==
        "never measured ... largest ... : a beside a 1.5, a beside d 1.5, b, c beside b, c 1.5, b, "
        "c beside d 1.5, d beside "
        "a 1.5, d beside b, c 1.5, d beside d 1.5");
  // Where both usages are known the fit tells, and nothing is guessed.
  for (model_profile& m : models) m.usage = {{1, 0.1, 0.1}};
  CHECK(plan_by_pairs(models, std::vector{row(0, 1, 1.5)}).empty());
}
TEST_CASE("a folder is planned by its fit, by pairs where there is none, and by both") {
  const test::profile_folder folder;
  const auto read = [&folder] { return read_profile_dir(folder.path(), true); };
  const std::string pairs =
      header + "a,1,50,b,1,50,4,6,1.5,0,5,host\nb,1,50,a,1,50,4,5,1.25,0,5,host\n";
  folder.write("pairs.csv", pairs);
  CHECK(read().models[0].beside.empty());  // Usage is known of both.
  CHECK(read().interference->l2_other == 1);
  // Without rows of b in util.csv: a beside a by the fit, what concerns b by pairs.
  folder.write("util.csv", "model,batch,l2_util_pct,dram_util_pct\na,1,20,40\n");
  CHECK(read().models[0].beside == factors{1.5, 1.5});
  CHECK(read().models[1].beside == factors{1.25, 1.5});
  CHECK(read().models[1].usage.empty());
  CHECK(test::gist{read().repairs.back()} == "... never measured ... : b beside b 1.5");
  std::remove((folder.path() + "/util.csv").c_str());
  CHECK(read().interference->l2_other == 0);
  CHECK(test::gist{read().repairs.back()} ==
        "... never measured ... : a beside a 1.5, b beside b 1.5");
  folder.write("pairs.csv", header);
  CHECK(test::gist_of<input_error>(read) ==
        folder.path() + "/pairs.csv: no rows ... `cohort interference`");
  folder.write("pairs.csv", pairs);
  folder.write("util.csv", "model,batch,l2_util_pct,dram_util_pct\na,1,20,40\nb,1,20,40\n");
  std::remove((folder.path() + "/interference.csv").c_str());
  CHECK(read().models[0].usage.empty());  // No fit to use it.
  CHECK(read().models[0].beside == factors{1.5, 1.5});
  std::remove((folder.path() + "/pairs.csv").c_str());
  const std::string complaint = folder.path() + "/interference.csv: missing";
  CHECK(test::gist_of<input_error>(read) == complaint);
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
}  // namespace cohort::formats::pairs_file_test
