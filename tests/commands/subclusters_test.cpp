// SPDX-License-Identifier: Apache-2.0
// The contract of `cohort subclusters`.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>

#include <support/complaint.hpp>
#include "commands/run_command.hpp"

namespace cohort::subclusters_test {
namespace {
using nlohmann::json;
using test::cohort_command;
using test::command_result;

const std::string models = "name,rate_rps,static_mb,dynamic_mb\nx,10,4,3\ny,20,2,1\nz,30,6,2\n";

json answer(const std::string& options, const std::string& input, int status = 0) {
  const command_result r = cohort_command("subclusters - --json " + options, input);
  INFO(r.err);
  REQUIRE(r.status == status);
  return json::parse(r.out);
}
void refuses(const std::string& options, const std::string& input, const std::string& complaint) {
  const command_result r = cohort_command("subclusters - " + options, input);
  CHECK(r.status == 2);
  CHECK(r.out.empty());
  CHECK(test::gist(r.err) == "cohort: " + complaint + "\n");
}

TEST_CASE("a few models get the optimum, with every field of the contract") {
  const json a = answer("--count 2 --memory-mb 9 --rate-cap 30", models);
  CHECK(a["status"] == "optimal");
  CHECK(a["objective"] == 0);
  CHECK(a["bound"] == 0);
  CHECK(a["seconds"].is_number());
  CHECK(a["imbalance"] == json{{"rate", 0}, {"memory", 0}});
  CHECK(a["assignment"]["x"] == a["assignment"]["y"]);
  CHECK(a["assignment"]["x"] != a["assignment"]["z"]);
}
TEST_CASE("caps that cannot be kept are infeasible, with exit status 1") {
  const json slow = answer("--count 2 --memory-mb 9 --rate-cap 29", models, 1);
  CHECK(test::gist(slow["reason"].get<std::string>()) ==
        "model \"z\": 30 requests a second ... 29");
  const json a = answer("--count 2 --memory-mb 8.5 --rate-cap 100", models, 1);
  CHECK(a["status"] == "infeasible");
  CHECK(test::gist(a["reason"].get<std::string>()) == "... assignment ... cap");
  CHECK(a["assignment"].is_null());
}
TEST_CASE("another solver: the same optimum where it is built in, an error where it is not") {
  const std::string caps = "--count 2 --memory-mb 9 --rate-cap 30 --solver ";
  refuses(caps + "magic", models, R"(--solver: bad value)");
#ifdef COHORT_HAS_CBC
  CHECK(answer(caps + "cbc", models)["status"] == "optimal");
  CHECK(answer(caps + "cbc", models)["objective"].get<double>() ==
        doctest::Approx(answer(caps + "search", models)["objective"].get<double>()));
  const json none = answer("--count 2 --memory-mb 8.5 --rate-cap 100 --solver cbc", models, 1);
  CHECK(none["status"] == "infeasible");
  CHECK(test::gist(none["reason"].get<std::string>()) == "... assignment ... cap");
#else
  refuses(caps + "cbc", models, R"(--solver: bad value)");
#endif
}
TEST_CASE("many models get an assignment within the caps, and moves from the current one are few") {
  std::string many = "name,rate_rps,static_mb,dynamic_mb,move_cost\n";
  for (int i = 0; i < 60; ++i) {
    many += "m" + std::to_string(i) + ',' + std::to_string(7 + i * 37 % 101) + ',' +
            std::to_string(5 + i * 53 % 89) + ",3,1\n";
  }
  const std::string caps = "--count 4 --memory-mb 1000 --rate-cap 1000 --time-limit-s 0.2";
  const json a = answer(caps, many);
  CHECK((a["status"] == "feasible" || a["status"] == "optimal"));
  REQUIRE(a["assignment"].size() == 60);
  // How even it is depends on the time that the search had: its own test counts steps instead.
  int rate[4]{};
  int memory[4]{};
  for (int i = 0; i < 60; ++i) {
    const auto in = a["assignment"]["m" + std::to_string(i)].get<std::size_t>();
    REQUIRE(in < 4);
    rate[in] += 7 + i * 37 % 101;
    memory[in] += 5 + i * 53 % 89;
  }
  for (const int sum : rate) CHECK(sum <= 1000);
  for (const int sum : memory) CHECK(sum <= 997);  // And 3 MB of the models' dynamic memory.
  json current = a["assignment"];
  for (int i = 0; i < 60; ++i) current["m" + std::to_string(i)] = i % 4;
  const std::string file = test::scratch("current.json");
  test::spill(file, current.dump());
  const json b = answer(caps + " --max-move-cost 5 --current " + file, many);
  std::remove(file.c_str());
  int moved = 0;
  for (int i = 0; i < 60; ++i) moved += b["assignment"]["m" + std::to_string(i)] != i % 4;
  CHECK(moved <= 5);
  CHECK(b["move_cost"] == moved);
}
TEST_CASE("an assignment that is best already is kept, whatever numbers its sub-clusters have") {
  const std::string four =
      "name,rate_rps,static_mb,dynamic_mb\na,10,0,0\nb,20,0,0\nc,30,0,0\nd,40,0,0\n";
  const std::string file = test::scratch("current.json");
  const std::string options = "--count 2 --memory-mb 9 --rate-cap 100 --current " + file;
  for (const char* current : {R"({"a":0,"b":1,"c":1,"d":0})", R"({"a":1,"b":0,"c":0,"d":1})"}) {
    test::spill(file, current);
    const json kept = answer(options, four);
    CHECK(kept["assignment"] == json::parse(current));
    CHECK(kept["move_cost"] == 0);
    CHECK(kept["objective"] == 0);
  }
  test::spill(file, R"({"a":1,"b":1,"c":0,"d":1})");  // Of both ways to number, one move.
  CHECK(answer(options, four)["move_cost"] == 1);
  std::remove(file.c_str());
}
TEST_CASE("the text says which model goes where, in a line for each sub-cluster") {
  const command_result few =
      cohort_command("subclusters - --count 2 --memory-mb 9 --rate-cap 30", models);
  CHECK(few.status == 0);
  CHECK((few.out.ends_with("\n0: z\n1: x, y\n") || few.out.ends_with("\n0: x, y\n1: z\n")));
  std::string many = "name,rate_rps,static_mb,dynamic_mb\n";
  for (int i = 0; i < 100; ++i) many += "model-" + std::to_string(1000 + i) + ",1,1,1\n";
  const command_result r = cohort_command(
      "subclusters - --count 2 --memory-mb 1000 --rate-cap 1000 --time-limit-s 0.1", many);
  CHECK(r.status == 0);
  CHECK(r.out.find(" more (--json names all)\n") != std::string::npos);
  for (std::size_t at = 0; at < r.out.size();) {
    const std::size_t end = r.out.find('\n', at);
    CHECK(end - at < 150);
    at = end + 1;
  }
}
TEST_CASE("bad input and usage are refused with their place") {
  const std::string caps = "--count 2 --memory-mb 9 --rate-cap 30";
  refuses(caps, "name,rate_rps,static_mb\nx,1,1\n", "standard input: line 1, dynamic_mb: missing");
  refuses(caps, models + "x,1,1,1\n", R"(standard input: line 5, name: bad value)");
  refuses(caps, "name,rate_rps,static_mb,dynamic_mb\n",
          "standard input: no rows ... at least one model");
  refuses("--count 0 --memory-mb 9 --rate-cap 30", models, "--count: bad value");
  refuses(caps + " --max-move-cost 3", models, R"(--max-move-cost: bad value)");
  const std::string file = test::scratch("current.json");
  test::spill(file, R"({"x":0,"y":2,"z":0})");
  refuses(caps + " --current " + file, models, file + ": $.y: bad value");
  test::spill(file, R"({"x":0,"y":1})");
  refuses(caps + " --current " + file, models, file + R"(: $: model "z": missing)");
  std::remove(file.c_str());
}
}  // namespace
}  // namespace cohort::subclusters_test
