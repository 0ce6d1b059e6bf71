// SPDX-License-Identifier: Apache-2.0
#include <formats/profile_dir.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <support/complaint.hpp>
#include <support/profile_folder.hpp>
#include <utility>

namespace cohort::formats::profile_dir_test {
namespace {
using namespace std::chrono_literals;

struct fixture {
  test::profile_folder folder;

  /// The complaint, without the folder; "none" if there is none.
  [[nodiscard]] test::gist complaint() const {
    try {
      (void)read_profile_dir(folder.path(), true);
    } catch (const input_error& e) {
      const std::string what = e.what();
      CHECK(what.find('\n') == std::string::npos);
      REQUIRE(what.starts_with(folder.path() + "/"));
      return test::gist{what.substr(folder.path().size() + 1)};
    }
    return test::gist{"none"};
  }
  void latencies(const std::string& rows) const {
    folder.write("latency.csv", "model,batch,partition_pct,latency_ms\n" + rows);
  }
};

TEST_CASE_FIXTURE(fixture, "latencies that cannot be are refused with line, field and range") {
  CHECK(complaint() == "none");
  for (const char* value : {"nan", "inf", "-1", "0", "1e9", ""}) {
    CAPTURE(value);
    latencies(std::string{"b,1,100,1\na,1,100,"} + value + "\n");
    CHECK(complaint() == "latency.csv: line 3, latency_ms: bad value");
  }
  latencies("");
  CHECK(complaint() == "latency.csv: model a: latency ... samples");
  latencies("b,1,100,1\na,1,100,1\na,8,100,5\na,1,100,2\n");
  CHECK(complaint() == "latency.csv: line 5, batch: bad value");
  latencies("b,1,100,1\na,8,100,5000\na,4,100,4\na,1,100,1\n");
  CHECK(complaint() == "latency.csv: line 3, latency_ms: bad value");
}
TEST_CASE_FIXTURE(fixture, "sizes of partitions that are too far apart are refused") {
  latencies("b,1,100,1\na,1,100,5000\na,1,50,8\na,1,20,20\n");
  CHECK(complaint() == "latency.csv: line 3, latency_ms: bad value");
  latencies("b,1,100,1\nb,1,50,2\na,1,100,5000\na,8,100,5000\n");  // Another model's.
  CHECK(complaint().starts_with("slo.csv: model \"a\", slo_ms: bad value"));
}
TEST_CASE_FIXTURE(fixture, "a larger partition that is slower than noise explains is told") {
  latencies("b,1,100,1\na,1,100,3\na,4,100,5\na,1,50,2\na,4,50,6\n");
  const profile_dir p = read_profile_dir(folder.path(), false);
  CHECK(test::gist{p.repairs} ==
        folder.path() +
            "/latency.csv: model \"a\" ... 50 % ... size 100 ... size 50 ... batch 1 ... kept");
  CHECK(packing::latency_table{p.models[0]}(1, 100) == 3);
  folder.write("latency.csv",
               "model,batch,partition_pct,latency_ms,spread\nb,1,100,1,0\na,1,100,3,0.5\n"
               "a,4,100,5,0\na,1,50,2,0\na,4,50,6,0\n");
  CHECK(read_profile_dir(folder.path(), false).repairs.empty());
}
TEST_CASE_FIXTURE(fixture, "a spread larger than the value is told, one that cannot be refused") {
  const std::string header = "model,batch,partition_pct,latency_ms,spread\n";
  folder.write("latency.csv", header + "b,1,100,1,0.1\na,1,100,1,1\n");
  CHECK(read_profile_dir(folder.path(), false).repairs.empty());
  folder.write("latency.csv", header + "b,1,100,1,1.25\na,1,100,1,1.5\na,2,100,1,0.5\n");
  CHECK(test::gist{read_profile_dir(folder.path(), false).repairs} ==
        folder.path() + "/latency.csv: ... spread ... 2 of 3 rows ... line 3 ... 150 %");
  warnings of_one;
  (void)read_whole_device(folder.path(), "b", of_one);
  CHECK(test::gist{of_one} ==
        folder.path() + "/latency.csv: ... spread ... 1 of 1 rows ... line 2 ... 125 %");
  folder.write("latency.csv", header + "b,1,100,1,0.1\na,1,100,1,-1\n");
  CHECK(complaint() == "latency.csv: line 3, spread: bad value");
}
TEST_CASE_FIXTURE(fixture, "latencies that fall are repaired, each size of a model on its own") {
  latencies("b,1,100,1\na,4,100,6\na,1,100,1\na,8,100,4\na,1,50,2\na,4,50,12\na,8,50,14\n");
  const profile_dir p = read_profile_dir(folder.path(), false);
  CHECK(test::gist{p.repairs} ==
        folder.path() +
            "/latency.csv: ... model \"a\" ... size 100 ... batch 4 to 8 ... 33 % ... mean");
  const packing::latency_table t{p.models[0]};
  CHECK(t(1, 100) == 1);
  CHECK(t(4, 100) == 5);
  CHECK(t(8, 100) == 5);
  CHECK(t(4, 50) == 12);
}
TEST_CASE_FIXTURE(fixture, "models that do not exist are refused in every file") {
  folder.write("util.csv", "model,batch,l2_util_pct,dram_util_pct\na,1,20,40\nc,1,20,40\n");
  CHECK(complaint() == "util.csv: line 3, model: bad value");
  folder.write("util.csv", "model,batch,l2_util_pct,dram_util_pct\na,1,20,40\n");
  CHECK(complaint().starts_with("util.csv: model \"b\": missing"));
  folder.write("util.csv", "model,batch,l2_util_pct,dram_util_pct\na,1,20,40\nb,1,20,140\n");
  CHECK(complaint() == "util.csv: line 3, dram_util_pct: bad value");
  folder.write("util.csv", "model,batch,l2_util_pct,dram_util_pct\na,1,20,40\nb,1,20,40\n");
  folder.write("interference.csv",
               "model,c_l2_self,c_l2_other,c_dram_self,c_dram_other,constant\nc,0,1,0,0,1\n");
  CHECK(complaint() == "interference.csv: line 2, model: bad value");
}
TEST_CASE_FIXTURE(fixture, "coefficients that tell what cannot be are refused") {
  // Of 20 % of a device 4 % of the cache is used: 0.04 - 5.
  folder.write("interference.csv",
               "c_l2_self,c_l2_other,c_dram_self,c_dram_other,constant\n0,1,0,0,-5\n");
  CHECK(complaint() ==
        "interference.csv: line 2: the factor of a at size 20 beside a at size 20: bad value");
  folder.write("interference.csv",
               "c_l2_self,c_l2_other,c_dram_self,c_dram_other,constant\n0,1,0,0,0.5\n");
  CHECK(complaint() == "none");
}
TEST_CASE_FIXTURE(fixture, "a model's whole device is read without the other models' rows") {
  latencies("x,1,100,-1\na,8,100,5\na,1,100,2\na,4,100,6\na,1,50,9\n");
  warnings repairs;
  const std::vector<latency_point> points = read_whole_device(folder.path(), "a", repairs);
  REQUIRE(points.size() == 3);
  CHECK(points[0].latency == 2ms);
  CHECK(points[1].batch == 4);
  CHECK(points[1].latency == 5500us);
  CHECK(points[2].latency == 5500us);
  CHECK(repairs.size() == 1);
  CHECK(test::gist_of<input_error>([&] { (void)read_whole_device(folder.path(), "b", repairs); }) ==
        (folder.path() + "/latency.csv: bad value"));
}
}  // namespace
}  // namespace cohort::formats::profile_dir_test
