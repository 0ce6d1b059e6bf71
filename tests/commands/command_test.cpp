// SPDX-License-Identifier: Apache-2.0
// The contract of the command: what goes in, what comes out, and the exit status.
#include <doctest/doctest.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include <registry/admission.hpp>
#include <registry/decode_tables.hpp>
#include <registry/pack_algorithm.hpp>
#include <registry/policy.hpp>
#include <registry/staged_policy.hpp>

#include <support/complaint.hpp>
#include "commands/run_command.hpp"

namespace cohort::command_test {
namespace {
using nlohmann::json;
using test::cohort_command;
using test::command_result;

const std::string resnet =
    R"({"devices":8,"models":[{"name":"ResNet50","alpha_ms":1.053,"beta_ms":5.072,"slo_ms":25}]})";
const std::string inception =
    R"({"devices":8,"models":[{"name":"IRv2","alpha_ms":5.090,"beta_ms":18.368,"slo_ms":70}]})";
/// The same, with a short run.
const std::string brief =
    R"({"devices":8,"models":[{"name":"ResNet50","alpha_ms":1.053,"beta_ms":5.072,"slo_ms":25}],)"
    R"("warmup_s":0.5,"duration_s":2})";

json answer_of(const command_result& r, int status = 0) {
  INFO(r.err);
  CHECK(r.err.empty());  // No progress where nobody watches.
  REQUIRE(r.status == status);
  return json::parse(r.out);
}

TEST_CASE("simulate prints every field of the contract") {
  const json a =
      answer_of(cohort_command("simulate - --policy deferred --rate 4500 --json", brief));
  CHECK(a["policy"] == "deferred");
  CHECK(a["seed"] == 1);
  CHECK(a["devices"] == 8);
  CHECK(a["offered_rps"] == 4500);
  const auto count = [&](const char* name) { return a[name].get<std::int64_t>(); };
  CHECK(count("arrived") == count("completed") + count("late") + count("dropped"));
  CHECK(count("arrived") > 8700);
  CHECK(count("arrived") < 9300);
  CHECK(a["bad_rate"].get<double>() < 0.01);
  CHECK(a["throughput_rps"].get<double>() == doctest::Approx(a["completed"].get<double>() / 2));
  CHECK(a["busy_fraction"].get<double>() > 0.5);
  CHECK(a["busy_fraction"].get<double>() < 1);
  CHECK(a["devices_used"].get<int>() <= 8);
  for (const char* name : {"mean", "p50", "p90"}) CHECK(a["batch_size"][name].is_number());
  for (const char* name : {"p50", "p99", "max"}) CHECK(a["queueing_ms"][name].is_number());
  for (const char* name : {"p50", "p90", "p99"}) CHECK(a["latency_ms"][name].is_number());
  CHECK(a["autoscale"]["bad_rate"] == a["bad_rate"]);
  CHECK(a["autoscale"]["idle_fraction"].get<double>() ==
        doctest::Approx(1 - a["busy_fraction"].get<double>()));
  CHECK(a["autoscale"]["advice_devices"].is_number_integer());
  REQUIRE(a["per_model"].size() == 1);
  for (const char* name : {"name", "offered_rps", "bad_rate", "p99_ms", "batch_p50"}) {
    CHECK(a["per_model"][0].contains(name));
  }
  CHECK_FALSE(a.contains("dispatches"));
}

TEST_CASE("equal seeds give equal bytes, other seeds do not") {
  for (const char* policy : {"deferred", "adaptive", "eager", "timeout:0.25"}) {
    INFO(std::string{policy});
    const std::string line =
        std::string{"simulate - --rate 5000 --json --dispatches --policy "} + policy + " --seed ";
    const std::string first = cohort_command(line + "7", brief).out;
    CHECK(first.size() > 1000);
    CHECK(first == cohort_command(line + "7", brief).out);
    CHECK(first != cohort_command(line + "8", brief).out);
  }
  const std::string line = "goodput - --policy deferred --precision 0.05 --seeds 1 --json";
  CHECK(cohort_command(line, brief).out == cohort_command(line, brief).out);
}

TEST_CASE("a percentile that lands on a dropped request is null") {
  const json a = answer_of(cohort_command("simulate - --policy eager --rate 20000 --json", brief));
  CHECK(a["bad_rate"].get<double>() > 0.5);
  CHECK(a["latency_ms"]["p90"].is_null());
  CHECK(a["per_model"][0]["p99_ms"].is_null());
  CHECK(a["autoscale"]["advice_devices"].get<int>() > 0);
}

TEST_CASE("--duration-s replaces the workload's duration") {
  const json a = answer_of(
      cohort_command("simulate - --policy deferred --rate 1000 --duration-s 4 --json", brief));
  CHECK(a["arrived"].get<double>() == doctest::Approx(4000).epsilon(0.1));
}

TEST_CASE("a workload may say its rate and its policy, which options replace") {
  const std::string own =
      R"({"devices":2,"rate_rps":100,"policy":{"name":"timeout:0.5","gather":"drop-head"},
    "models":[{"name":"m","alpha_ms":1,"beta_ms":5,"slo_ms":50}],"duration_s":5})";
  const json a = answer_of(cohort_command("simulate - --json", own));
  CHECK(a["policy"] == "timeout:0.5");
  CHECK(a["gather"] == "drop-head");
  CHECK(a["offered_rps"] == 100);
  CHECK(a["served_ms"]["p50"] == a["latency_ms"]["p50"]);
  const json b =
      answer_of(cohort_command("simulate - --policy eager --rate 50 --devices 3 --json", own));
  CHECK(b["policy"] == "eager");
  CHECK(b["gather"] == "head");
  CHECK(b["offered_rps"] == 50);
  CHECK(b["devices"] == 3);
  const json g = answer_of(cohort_command("goodput - --devices 1 --json", own));
  CHECK(g["goodput"][0]["policy"] == "timeout:0.5");
  CHECK(g["goodput"][0]["at_peak"]["devices"] == 1);
  CHECK(answer_of(cohort_command("min-devices - --json", own))["min_devices"][0]["devices"] == 1);
}

TEST_CASE(
    "models of a pool run on its devices, by every policy of cohort, and rivals refuse pools") {
  const std::string pools = R"({"devices":3,"warmup_s":0.5,"duration_s":2,"models":[)"
                            R"({"name":"a","alpha_ms":1,"beta_ms":5,"slo_ms":25},)"
                            R"({"name":"b","alpha_ms":1,"beta_ms":5,"slo_ms":25}],)"
                            R"("pools":[{"name":"x","devices":1,"models":["b"]},)"
                            R"({"name":"y","devices":2,"models":["a"]}]})";
  for (const char* policy : {"deferred", "adaptive", "eager", "timeout:0.1"}) {
    const auto run = answer_of(cohort_command(
        fmt::format("simulate - --policy {} --rate 500 --dispatches --json", policy), pools));
    CHECK(run["completed"].get<int>() > 900);
    for (const auto& d : run["dispatches"]) {
      CHECK((d["model"] == "b") == (d["device"].get<int>() == 0));
    }
  }
  const std::string answer = test::scratch("assignment");
  test::spill(answer, R"({"status":"optimal","assignment":{"ResNet50":3}})");
  const auto one = answer_of(
      cohort_command("simulate - --policy eager --rate 500 --json --subclusters " + answer, brief));
  CHECK(one["devices_used"] == 8);
  const auto other =
      cohort_command("simulate - --policy eager --rate 500 --subclusters " + answer, pools);
  CHECK(other.status == 2);
  CHECK(test::gist(other.err).ends_with(": bad value\n"));
  std::remove(answer.c_str());

  const auto refusal = [&](const std::string& arguments) {
    const auto r = cohort_command(arguments, pools);
    CHECK(r.status == 2);
    return test::gist(r.err);
  };
  CHECK(refusal("simulate - --policy shepherd --rate 5") == "cohort: --policy: bad value\n");
  CHECK(refusal("simulate - --policy eager --rate 5 --devices 4") ==
        "cohort: --devices: bad value\n");
  for (const std::string what : {"min-devices", "autoscale"}) {
    CHECK(refusal(what + " - --policy eager --rate 5") ==
          "cohort: standard input: $.pools: bad value\n");
  }
}

TEST_CASE("--trace writes a span for each batch and a name for each device") {
  const std::string file = test::scratch("trace.json");
  const json a = answer_of(cohort_command(
      "simulate - --policy deferred --rate 1000 --dispatches --json --trace " + file, brief));
  const json trace = json::parse(test::slurp(file));
  std::remove(file.c_str());
  const json& events = trace["traceEvents"];
  const auto of_phase = [&](const char* phase) {
    return std::ranges::count_if(events, [&](const json& e) { return e["ph"] == phase; });
  };
  CHECK(of_phase("X") == static_cast<long>(a["dispatches"].size()));
  CHECK(of_phase("M") == 9);
}

TEST_CASE("without --json the answer is a table") {
  const auto r = cohort_command("simulate - --policy deferred --rate 1000", brief);
  CHECK(r.status == 0);
  CHECK(r.err.empty());
  CHECK(r.out.find("deferred (drop-head) on 8 devices, seed 1\n") == 0);
  CHECK(r.out.find("ResNet50      25       1000.0") != std::string::npos);
}

TEST_CASE("deferred's goodput is within 1.5 % of the published rule's") {
  const json r = answer_of(
      cohort_command("goodput - --policy deferred --seeds 1 --duration-s 10 --json", resnet));
  CHECK(r["goodput"][0]["goodput_rps"].get<double>() == doctest::Approx(5325).epsilon(0.015));
  const json i = answer_of(cohort_command("goodput - --policy deferred --json", inception));
  CHECK(i["goodput"][0]["goodput_rps"].get<double>() == doctest::Approx(946).epsilon(0.015));
}

TEST_CASE("goodput answers for each policy in order, with the run at the peak") {
  const json a = answer_of(cohort_command(
      "goodput - --policy eager,deferred --precision 0.02 --seeds 1 --seed 5 --json", brief));
  REQUIRE(a["goodput"].size() == 2);
  CHECK(a["goodput"][0]["policy"] == "eager");
  const json& deferred = a["goodput"][1];
  CHECK(deferred["policy"] == "deferred");
  const double rate = deferred["goodput_rps"].get<double>();
  CHECK(deferred["at_peak"]["offered_rps"] == rate);
  CHECK(deferred["at_peak"]["seed"] == 5);
  const std::string line = "simulate - --policy deferred --gather " +
                           deferred["gather"].get<std::string>() + " --seed 5 --json --rate " +
                           deferred["goodput_rps"].dump();
  CHECK(answer_of(cohort_command(line, brief)) == deferred["at_peak"]);
}

TEST_CASE("compared policies have the better gather rule, which is named") {
  const auto goodput = [](const std::string& policies, const std::string& more) {
    return answer_of(cohort_command(
        "goodput - --precision 0.02 --seeds 1 --json --policy " + policies + more, brief));
  };
  for (const std::string policy : {"eager", "deferred"}) {
    CAPTURE(policy);
    const json head = goodput(policy, " --gather head")["goodput"][0];
    const json drop_head = goodput(policy, " --gather drop-head")["goodput"][0];
    CHECK(head["gather"] == "head");
    CHECK(drop_head["gather"] == "drop-head");
    CHECK(head["goodput_rps"] != drop_head["goodput_rps"]);
    const json& better = head["goodput_rps"] > drop_head["goodput_rps"] ? head : drop_head;
    CHECK(goodput(policy, " --gather best")["goodput"][0] == better);
    if (policy == "eager") CHECK(goodput("eager,adaptive", "")["goodput"][0] == better);
  }
  // One policy alone is what it was.
  CHECK(goodput("eager", "")["goodput"][0]["gather"] == "head");
  const auto text = cohort_command("goodput - --precision 0.1 --policy eager,adaptive", brief);
  CHECK(text.out.find("(gather: the better rule of each policy that has a choice)\n") !=
        std::string::npos);
  const json fewest =
      answer_of(cohort_command("min-devices - --policy eager,adaptive --rate 4000 --json", brief));
  CHECK(fewest["min_devices"][0]["gather"].is_string());
  CHECK(fewest["min_devices"][1]["gather"] == "drop-head");
}

TEST_CASE("--judge total lets a model be bad that each model's limit does not") {
  // Of two models with constant gaps the second is rare and cannot be served in time beside the
  // first: its batches of 9 ms find the device taken for up to 4 ms, with an SLO of 10 ms.
  const std::string pair =
      R"({"devices":1,"models":[{"name":"often","alpha_ms":1,"beta_ms":3,"slo_ms":40,"share":99},)"
      R"({"name":"rare","alpha_ms":1,"beta_ms":8,"slo_ms":10,"share":1}],"duration_s":10})";
  const auto found = [&](const char* judge) {
    return answer_of(cohort_command(
        std::string{"goodput - --policy eager --bad-limit 0.02 --json --judge "} + judge, pair));
  };
  const json each = found("model");
  const json total = found("total");
  CHECK(each["judge"] == "model");
  CHECK(total["judge"] == "total");
  CHECK(total["goodput"][0]["goodput_rps"].get<double>() >
        2 * each["goodput"][0]["goodput_rps"].get<double>());
  CHECK(total["warnings"].empty());
  const auto text = cohort_command("min-devices - --policy eager --rate 50 --judge total", pair);
  CHECK(text.out.find("at most 1 % of all requests bad\n") != std::string::npos);
}

TEST_CASE("models with fewer than 1000 requests are warned of, on standard error or in the JSON") {
  // Equal gaps: 600 requests of each model a second times 2 s, and a third of that.
  const std::string three =
      R"({"devices":8,"models":[{"name":"a","alpha_ms":1,"beta_ms":1,"slo_ms":25,"share":3},)"
      R"({"name":"b","alpha_ms":1,"beta_ms":1,"slo_ms":25,"share":1},)"
      R"({"name":"c","alpha_ms":1,"beta_ms":1,"slo_ms":25,"share":2},)"
      R"({"name":"never","alpha_ms":1,"beta_ms":1,"slo_ms":25,"share":0}],)"
      R"("arrivals":{"process":"uniform"},"warmup_s":0,"duration_s":2})";
  const std::string warning =
      "2 of 4 models ... 1000 requests ... \"b\" ... 400 ... --duration-s 6";
  const std::string run = " - --policy eager --rate 1200";
  for (const char* sub : {"simulate", "min-devices"}) {
    CAPTURE(std::string{sub});
    const auto text = cohort_command(sub + run, three);
    CHECK(text.status == 0);
    CHECK(test::gist(text.err) == "cohort: warning: " + warning + "\n");
    const json a = answer_of(cohort_command(sub + run + " --json", three));
    CHECK(test::gist(a["warnings"].get<std::vector<std::string>>()) == warning);
    CHECK(cohort_command(sub + run + " --duration-s 6", three).err.empty());
    CHECK(answer_of(cohort_command(sub + run + " --json --duration-s 6", three))["warnings"] ==
          json::array());
  }
  const auto goodput =
      cohort_command("goodput - --policy eager --duration-s 0.05 --precision 0.1", three);
  CHECK(goodput.status == 0);
  CHECK(goodput.err.starts_with("cohort: warning: eager (head) at "));
  CHECK(std::ranges::count(goodput.err, '\n') == 1);
}

TEST_CASE("a policy whose goodput falls since batches run longer than their profiles is told of") {
  const std::string longer =
      R"({"devices":2,"models":[{"name":"m","alpha_ms":5,"beta_ms":1,"slo_ms":25}],"warmup_s":1,)"
      R"("duration_s":5,"reality":{"noise":{"bias":1.2,"sigma":0.1}}})";
  const auto r = cohort_command("goodput - --policy deferred --precision 0.1 --seeds 1", longer);
  CAPTURE(r.err);
  CHECK(test::gist(r.err) == "cohort: warning: deferred (drop-head) ... adaptive\n");
  const auto learns =
      cohort_command("goodput - --policy adaptive --precision 0.1 --seeds 1", longer);
  CHECK(learns.err.find("try adaptive") == std::string::npos);
}

TEST_CASE("what was repaired in a profile is said on standard error or in the JSON") {
  // 3 and 2 make 2.5.
  const std::string falls =
      R"({"devices":2,"models":[{"name":"m","latency_ms":{"1":3,"2":2,"4":6},"slo_ms":25}],)"
      R"("arrivals":{"process":"uniform"},"warmup_s":0,"duration_s":10})";
  const std::string warning = "standard input: ... model \"m\" ... batch 1 to 2 ... 33 % ... mean";
  for (const char* run :
       {"simulate - --policy eager --rate 200", "min-devices - --policy eager --rate 200",
        "goodput - --policy eager --precision 0.5 --seeds 1"}) {
    CAPTURE(std::string{run});
    const auto text = cohort_command(run, falls);
    CHECK(text.status == 0);
    CHECK(test::gist(text.err) == "cohort: warning: " + warning + "\n");
    const auto answer = cohort_command(std::string{run} + " --json", falls);
    CHECK(answer.err.empty());
    CHECK(test::gist(json::parse(answer.out)["warnings"].get<std::vector<std::string>>()) ==
          warning);
  }
}

TEST_CASE("min-devices finds a count that serves, one fewer does not, and too low a limit is no") {
  const json a =
      answer_of(cohort_command("min-devices - --policy deferred --rate 3000 --json", brief));
  const int devices = a["min_devices"][0]["devices"].get<int>();
  CHECK(a["min_devices"][0]["policy"] == "deferred");
  CHECK(devices >= 4);  // 3000 r/s x ℓ(b) / b is at least 3.16 devices, at b = ∞.
  CHECK(devices <= 8);
  const std::string limit = std::to_string(devices - 1);
  const json no = answer_of(
      cohort_command("min-devices - --policy deferred --rate 3000 --json --limit " + limit, brief),
      1);
  CHECK(no["min_devices"][0]["devices"].is_null());
}

TEST_CASE("workload prints what simulate reads") {
  const json all = answer_of(cohort_command("workload --zoo a100 --devices 64"));
  CHECK(all["devices"] == 64);
  CHECK(all["models"].size() == 37);
  CHECK(all["models"][0]["name"] == "DenseNet121");
  CHECK(all["models"][0]["alpha_ms"] == 0.054);
  CHECK(answer_of(cohort_command("workload --zoo 1080ti --devices 1"))["models"].size() == 35);

  const auto some = cohort_command(
      "workload --zoo a100 --models ResNet50,BERT --copies 2 --devices 3 --slo-ms 100 "
      "--popularity zipf --arrivals gamma --shape 0.3");
  const json w = answer_of(some);
  REQUIRE(w["models"].size() == 4);
  CHECK(w["models"][0]["name"] == "ResNet50-1");
  CHECK(w["models"][3]["name"] == "BERT-2");
  CHECK(w["models"][3]["slo_ms"] == 100);
  CHECK(w["popularity"] == "zipf");
  CHECK(w["arrivals"]["process"] == "gamma");
  CHECK(w["arrivals"]["shape"] == 0.3);
  const json run =
      answer_of(cohort_command("simulate - --policy deferred --rate 100 --json", some.out));
  CHECK(run["per_model"].size() == 4);
  CHECK(run["per_model"][0]["offered_rps"].get<double>() >
        run["per_model"][1]["offered_rps"].get<double>());
}

TEST_CASE("the mixes divide the zoo by how much its models gain from batching") {
  const json strong = answer_of(cohort_command("workload --zoo a100 --mix strong --devices 1"));
  const json weak = answer_of(cohort_command("workload --zoo a100 --mix weak --devices 1"));
  CHECK(strong["models"].size() == 29);  // Table 4: NASNetLarge, 2.065, is the last above 2.
  CHECK(weak["models"].size() == 8);
  for (const json& m : weak["models"]) {
    CHECK(m["beta_ms"].get<double>() <= 2 * m["alpha_ms"].get<double>());
  }
}

TEST_CASE("load shows no empty key") {
  setenv("COHORT_API_KEY", "", 1);
  const command_result r = cohort_command("load --rate 1");
  unsetenv("COHORT_API_KEY");
  CHECK(r.status == 2);
  CHECK(test::gist(r.err) == "cohort: COHORT_API_KEY: ... empty key ...\n");
}

TEST_CASE("autoscale follows a load, and sets beside it the fewest devices that would do") {
  const std::string load = test::scratch("load.csv");
  test::spill(load, "time_s,part\n0,1\n60,2\n120,1\n");
  // All takes ten times as long as with ResNet50, so that fewer requests do.
  const std::string slow =
      R"({"devices":8,"models":[{"name":"m","alpha_ms":10.53,"beta_ms":50.72,"slo_ms":250}]})";
  const std::string run =
      "autoscale - --policy deferred --rate 300 --duration-s 118 --delay-s 20 --load " + load;
  const json a = answer_of(cohort_command(run + " --json", slow));
  CHECK(a["policy"] == "deferred");
  CHECK(a["windows"].size() == 12);
  CHECK(a["windows"][0]["end_s"] == 10);
  CHECK(a["most_devices"].get<int>() > a["fewest_devices"].get<int>());
  CHECK(a["device_hours"].get<double>() > a["least_device_hours"].get<double>());
  CHECK(a["device_hours"].get<double>() < 2 * a["least_device_hours"].get<double>());
  CHECK(
      answer_of(cohort_command(run + " --json --least off", slow))["least_device_hours"].is_null());
  const std::string picture = test::scratch("devices.svg");
  const auto text = cohort_command(run + " --svg " + picture, slow);
  CHECK(text.out.find("device-hours") != std::string::npos);
  CHECK(text.out.find("at the least") != std::string::npos);
  CHECK(test::slurp(picture).starts_with("<svg"));
  std::filesystem::remove(load);
  std::filesystem::remove(picture);
  const std::string bad[][2]{{"--load /no/such.csv", "/no/such.csv: cannot be read"},
                             {"--load -", "--load: bad value"},
                             {"--delay-s -1", "--delay-s: bad value"},
                             {"--window-s 0", "--window-s: bad value"},
                             {"--calm-windows 0", "--calm-windows: bad value"},
                             {"--limit 4", "standard input: $.devices: bad value"},
                             {"--limit 4 --devices 9", "--devices: bad value"},
                             {"--least maybe", "--least: bad value"}};
  for (const auto& [option, why] : bad) {
    CAPTURE(option);
    const auto r = cohort_command("autoscale - --policy eager --rate 100 " + option, resnet);
    CHECK(r.status == 2);
    CHECK(test::gist(r.err).find(why) != std::string::npos);
  }
  CHECK(cohort_command("autoscale - --policy nexus --rate 100", resnet).status == 2);
}

TEST_CASE("help and errors name all that an option takes") {
  using cohort::registry::name_list;
  using namespace cohort::registry;
  const struct {
    std::string sub;
    std::string option;
    const name_list& names;
  } tables[]{{"simulate", "--policy", simulated_policy_names()},
             {"simulate", "--gather", gather_names()},
             {"goodput", "--policy", simulated_policy_names()},
             {"goodput", "--gather", searched_gather_names()},
             {"min-devices", "--policy", simulated_policy_names()},
             {"pipeline", "--policy", staged_policy_names()},
             {"decode", "--method", decode_methods.list()},
             {"decode", "--pick", decode_picks.list()},
             {"decode", "--kernel", decode_kernels.list()},
             {"decode", "--admission", admission_names()},
             {"pack", "--algorithm", packer_names()},
             {"pack", "--order", order_names()},
             {"replan", "--algorithm", packer_names()},
             {"replan", "--fit", fit_names()}};
  for (const auto& t : tables) {
    CAPTURE(t.sub);
    CAPTURE(t.option);
    const std::string help = cohort_command(t.sub + " --help").out;
    for (const auto& n : t.names.all()) {
      CAPTURE(n.form());
      CHECK(help.find("\n      " + n.form() + " ") != std::string::npos);
      CHECK(help.find(" " + std::string{n.help} + "\n") != std::string::npos);
    }
  }
  const auto bad = cohort_command("decode requests.csv --batch 2 --method magic");
  CHECK(bad.status == 2);
  CHECK(bad.err ==
        "cohort: --method: got \"magic\", expected " + decode_methods.list().names() + "\n");
}

TEST_CASE("help and version go to standard output, usage without a subcommand to standard error") {
  const auto help = cohort_command("--help");
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  CHECK(help.out.find("Example:") != std::string::npos);
  for (const char* sub : {"workload", "simulate", "goodput", "min-devices", "profile"}) {
    INFO(std::string{sub});
    CHECK(help.out.find(sub) != std::string::npos);
    const auto one = cohort_command(std::string{sub} + " --help");
    CHECK(one.status == 0);
    CHECK(one.out.find(std::string{"Example: cohort "} + sub) != std::string::npos);
  }
  CHECK(cohort_command("--version").out == "cohort 0.1.0\n");
  const auto none = cohort_command("");
  CHECK(none.status == 2);
  CHECK(none.out.empty());
  CHECK(none.err.find("Usage: cohort") != std::string::npos);
}

TEST_CASE("bad usage and bad input are one line on standard error and exit status 2") {
  const std::string trace_input =
      R"({"devices":1,"models":[{"name":"m","alpha_ms":1,"beta_ms":1,"slo_ms":9}],)"
      R"("arrivals":{"process":"trace","file":"/dev/null"}})";
  struct row {
    const char* arguments;
    const std::string& input;
    const char* message;  ///< A part of it.
  };
  const std::string nothing;
  const std::string broken = "{\"devices\": 8,";
  const std::string negative =
      R"({"devices":8,"models":[{"name":"m","alpha_ms":-1,"beta_ms":1,"slo_ms":9}]})";
  const std::string failing =
      R"({"devices":1,"models":[{"name":"m","alpha_ms":1,"beta_ms":1,"slo_ms":9}],)"
      R"("reality":{"faults":[{"at_s":1,"device":0,"kind":"fail","for_s":1}]}})";
  const row rows[] = {
      {"frobnicate", nothing, "\"frobnicate\" is not a subcommand"},
      {"--frobnicate", nothing, "\"--frobnicate\": unknown option"},
      {"simulate", nothing, "missing"},
      {"simulate - --rate 10", brief, "--policy: missing"},
      {"simulate - --rate 10",
       R"({"devices":8,"policy":{"name":"best"},"models":[{"name":"m","alpha_ms":1,"beta_ms":1,"slo_ms":9}]})",
       "standard input: $.policy: --policy: bad value"},
      {"goodput - --policy eager --quantile 0.9", brief, "--quantile: only with --policy adaptive"},
      {"simulate - --policy deferred --rate 10 --devices 0", brief, "--devices: bad value"},
      {"goodput - --policy deferred --devices 1.5", brief, "--devices: bad value"},
      {"simulate - --policy deferred", brief, "--rate: missing"},
      {"simulate - --policy deferred --rate", brief, "--rate: missing"},
      {"simulate - --policy deferred --rate 1 --rate 2", brief, "--rate: repeated"},
      {"simulate - --policy deferred --rate 0", brief, "--rate: bad value"},
      {"simulate - --policy deferred --rate -5", brief, "--rate: bad value"},
      {"simulate - --policy deferred --rate nan", brief, "--rate: bad value"},
      {"simulate - --policy deferred --rate inf", brief, "--rate: bad value"},
      {"simulate - --policy deferred --rate 1e400", brief, "--rate: bad value"},
      {"simulate - --policy deferred --rate 1e9", brief, "--rate: bad value"},
      {"simulate - --policy deferred --rate 10 --seed 1.5", brief, "--seed: bad value"},
      {"simulate - --policy deferred --rate 10 --seed -1", brief, "--seed: bad value"},
      {"simulate - --policy deferred --rate 10 --duration-s 0", brief, "--duration-s: bad value"},
      {"simulate - --policy deferred --rate 10 --gather tail", brief, "--gather: bad value"},
      {"simulate - --policy adaptive --rate 10 --gather head", brief,
       "--gather: not with adaptive, which chooses its own rule"},
      {"simulate - --policy deferred,eager --rate 10", brief, "--policy: bad value"},
      {"simulate - --policy best --rate 10", brief, "--policy: bad value"},
      {"simulate - --policy clockwork:-1 --rate 10", brief, "--policy clockwork: bad value"},
      {"goodput - --policy shepherd --gather head", brief,
       "--gather: not with shepherd, which chooses its own rule"},
      {"simulate - --policy nexus --rate 10", failing, "--policy: bad value"},
      {"simulate - --policy timeout:2 --rate 10", brief, "--policy timeout: bad value"},
      {"simulate - --policy deferred --rate 10 --json=no", brief, "--json"},
      {"simulate - --policy deferred --rate 10 --bogus", brief, "\"--bogus\": unknown option"},
      {"simulate - --policy deferred --rate 10 --trace /no/such/dir/t", brief,
       "/no/such/dir/t: cannot be written"},
      {"simulate - --policy deferred --rate 10", broken, "standard input: line 1, column "},
      {"simulate - --policy deferred --rate 10", negative,
       "standard input: $.models[0].alpha_ms: bad value"},
      {"simulate no.json --policy deferred --rate 10", nothing, "no.json: cannot be read"},
      {"simulate - --policy deferred", trace_input, "/dev/null: line 1: missing"},
      {"goodput - --policy deferred --precision 0", brief, "--precision: bad value"},
      {"goodput - --policy deferred --bad-limit 1", brief, "--bad-limit: bad value"},
      {"goodput - --policy deferred --judge all", brief, "--judge: bad value"},
      {"min-devices - --policy deferred --rate 10 --judge each", brief, "--judge: bad value"},
      {"goodput - --policy eager --gather both", brief, "--gather: bad value"},
      {"goodput - --policy adaptive --gather best", brief,
       "--gather: not with adaptive, which chooses its own rule"},
      {"simulate - --policy eager --rate 10 --gather best", brief, "--gather: bad value"},
      {"goodput - --policy deferred --seeds 0", brief, "--seeds: bad value"},
      {"goodput - --policy deferred,deferred", brief, "--policy: bad value"},
      {"min-devices - --policy deferred", brief, "--rate: missing"},
      {"min-devices - --policy deferred --rate 10 --limit 0", brief, "--limit: bad value"},
      {"workload --devices 3", nothing, "--zoo: missing"},
      {"workload --zoo a100", nothing, "--devices: missing"},
      {"workload --zoo h100 --devices 3", nothing, "--zoo: bad value"},
      {"workload --zoo a100 --devices 0", nothing, "--devices: bad value"},
      {"workload --zoo a100 --devices 3 --models Resnet", nothing, "--models: bad value"},
      {"workload --zoo a100 --devices 3 --models BERT,BERT", nothing, "--models: bad value"},
      {"workload --zoo a100 --devices 3 --slo-ms 5", nothing, "--slo-ms: bad value"},
      {"workload --zoo a100 --devices 3 --models BERT --mix strong", nothing, "--mix: bad value"},
      {"workload --zoo a100 --devices 3 --arrivals gamma --shape 1.5", nothing,
       "--shape: bad value"},
      {"workload --zoo a100 --devices 3 --shape 0.5", nothing, "--shape: bad value"},
      {"simulate - --policy deferred --rate 10 --trace -", brief, "--trace: bad value"},
      {"simulate - --policy deferred --rate 10 --trace /", brief,
       "/: cannot be written: Is a directory"},
      {"simulate - --policy deferred --rate 10 --trace no/such", brief,
       "no/such: cannot be written: No such file or directory"},
      {"load --rate 1 --json=x", nothing, "--json: bad value"},
      {"profile --model lenet --batches 1024 --out /proc", nothing, "/proc"},
      {"workload --zoo a100 --devices 3 --arrivals trace", nothing, "--arrivals: bad value"},
  };
  for (const row& r : rows) {
    INFO(std::string{r.arguments});
    const auto got = cohort_command(r.arguments, r.input);
    CAPTURE(got.err);
    CHECK(got.status == 2);
    CHECK(got.out.empty());
    CHECK(got.err.starts_with("cohort: "));
    CHECK(std::ranges::count(got.err, '\n') == 1);
    CHECK(test::gist(got.err).find(r.message) != std::string::npos);
  }
}

TEST_CASE("what is missing is named with all that it may be") {
  const std::pair<const char*, const char*> rows[] = {
      {"workload", "--zoo: missing ... a100 or 1080ti"},
      {"workload --zoo a100 --devices", "--devices: missing ... value"},
      {"simulate", "WORKLOAD: missing ... file ... - ..."}};
  for (const auto& [arguments, message] : rows) {
    CHECK(test::gist(cohort_command(arguments).err) == fmt::format("cohort: {}\n", message));
  }
  CHECK(test::gist(cohort_command("decode x.csv --batch 2 --method").err) ==
        "cohort: --method: missing ... " + cohort::registry::decode_methods.list().names() + "\n");
  CHECK(test::gist(cohort_command("simulate - --rate 10", brief).err) ==
        "cohort: --policy: missing ... workload ...\n");
}

TEST_CASE("a trace has its own rate, and searches over rates refuse it") {
  const std::string csv = test::scratch("arrivals.csv");
  test::spill(csv, "time_ms,model\n1,m\n2,m\n");
  const std::string input =
      R"({"devices":1,"warmup_s":0,"models":[{"name":"m","alpha_ms":1,"beta_ms":1,"slo_ms":9}],)"
      R"("arrivals":{"process":"trace","file":")" +
      csv + "\"}}";
  const json a = answer_of(cohort_command("simulate - --policy deferred --json", input));
  CHECK(a["arrived"] == 2);
  CHECK(a["completed"] == 2);
  for (const char* line : {"simulate - --policy deferred --rate 5", "goodput - --policy deferred",
                           "min-devices - --policy deferred --rate 5"}) {
    INFO(std::string{line});
    const auto r = cohort_command(line, input);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK(r.err.find("trace") != std::string::npos);
  }
  std::remove(csv.c_str());
}

}  // namespace
}  // namespace cohort::command_test
