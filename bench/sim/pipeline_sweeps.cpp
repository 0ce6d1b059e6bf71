// SPDX-License-Identifier: Apache-2.0
// Questions: how many stages are right, if each item costs something to hand over? How many buffer
// sets, if each costs something too? Prints CSV: sweep,model,value,load,mean_ms.
// pipeline_sweeps DIR [--quick]: DIR holds unet.json, bert_base.json and rte_lengths.csv.
#include <formats/staged_model_file.hpp>
#include <formats/text.hpp>
#include <registry/staged_policy.hpp>

#include <cohort/batching/slicer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace {
using namespace cohort;
using namespace cohort::formats;
using namespace cohort::registry;

const staged_policy dvabatch = parse_staged_policy("dvabatch");

/// The model cut into `n` even stages: each of its stages counts as five equal operators.
staged_model_spec sliced(const staged_model_spec& m, std::size_t n) {
  std::vector<std::vector<batching::batch_time>> operators;
  for (const stage_spec& s : m.stages) {
    for (int part = 0; part < 5; ++part) {
      operators.emplace_back();
      for (const batching::stage_point& p : s.points) {
        operators.back().push_back({p.batch, p.time / 5});
      }
    }
  }
  std::vector<duration> times;
  for (const auto& o : operators) times.push_back(o.back().time);
  const auto ends = batching::slice_evenly(times, n);
  staged_model_spec out = m;
  out.stages.clear();
  std::vector<std::vector<batching::stage_point>> stages;
  batching::add_stage_points(stages, operators, ends);
  for (auto& points : stages) {
    out.stages.push_back(
        {.name = fmt::format("s{}", out.stages.size() + 1), .points = std::move(points)});
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    fmt::print(stderr, "pipeline_sweeps: expected the folder of the profiles\n");
    return 2;
  }
  const std::string dir = argv[1];
  const bool quick = argc > 2 && std::string_view{argv[2]} == "--quick";
  const std::uint64_t requests = quick ? 1000 : 30000;
  const auto read = [&](const std::string& name) {
    const std::string file = dir + "/" + name;
    return parse_staged_model(file, read_file(file));
  };
  fmt::print("sweep,model,value,load,mean_ms\n");
  const staged_model_spec unet = read("unet.json");
  for (const double load : {0.25, 0.6, 0.9}) {
    const auto arrivals = draw_staged_arrivals(load * 1333, requests, 1, {});
    for (std::size_t n = 1; n <= (quick ? 2 : 20); ++n) {
      const staged_runner r{sliced(unet, n)};
      fmt::print("stages,unet,{},{},{:.3f}\n", n, load,
                 r.run(dvabatch, arrivals, {.overhead = from_ms(0.05)}).mean_ms());
    }
  }
  staged_model_spec bert = read("bert_base.json");
  const std::string csv = dir + "/rte_lengths.csv";
  const auto lengths = parse_lengths(csv, read_file(csv), bert);
  for (const double rate : {230.0, 930.0, 1860.0, 2790.0}) {
    const auto arrivals = draw_staged_arrivals(rate, requests, 1, lengths);
    for (std::uint32_t k = 1; k <= 4; ++k) {
      bert.buffer_sets = k;
      // A set costs memory traffic and switching: 0.02 ms an item for each beyond the first.
      const double cost = 0.05 + 0.02 * (k - 1);
      fmt::print(
          "buffer_sets,bert_base,{},{},{:.3f}\n", k, rate,
          staged_runner{bert}.run(dvabatch, arrivals, {.overhead = from_ms(cost)}).mean_ms());
    }
  }
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "pipeline_sweeps: {}\n", e.what());
  return 2;
}
