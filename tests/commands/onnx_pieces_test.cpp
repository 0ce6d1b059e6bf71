// SPDX-License-Identifier: Apache-2.0
// Answers of models that were cut, against those of the whole models.
#include <commands/onnx_pieces.hpp>

#include <doctest/doctest.h>

#include <support/onnx_models.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace cohort::commands {
namespace {

using runtime::data_type;

std::shared_ptr<const runtime::onnx::library> runtime_library() {
  static const auto one = runtime::onnx::library::open();
  return one;
}

onnx_pieces pieces_of(const formats::onnx_model& m, bool splits_fusions, std::size_t most = 64) {
  return {m,
          runtime_library(),
          {.name = m.name,
           .max_size = static_cast<std::uint32_t>(test::encoder_longest),
           .most_tensors = 3,
           .most_pieces = most,
           .splits_fusions = splits_fusions}};
}

/// Floats of any sign; ids of the test vocabulary, masks of 0 and 1.
dense_tensors draw(const runtime::model_interface& m, std::uint32_t rows, std::uint32_t size,
                   std::mt19937_64& random) {
  dense_tensors out;
  for (const runtime::tensor_info& t : m.inputs) {
    std::vector<std::byte>& data = out.emplace_back(t.bytes(size) * rows);
    const std::size_t bytes = runtime::bytes_of(t.type);
    const bool is_mask = t.name.find("mask") != std::string::npos;
    for (std::size_t at = 0; at < data.size(); at += bytes) {
      if (t.type == data_type::f32) {
        const float x = static_cast<float>(random() % 2001) / 1000.0F - 1.0F;
        std::memcpy(data.data() + at, &x, bytes);
      } else {
        const std::int64_t id = static_cast<std::int64_t>(random() % (is_mask ? 2 : 64));
        std::memcpy(data.data() + at, &id, bytes);
      }
    }
  }
  return out;
}

/// Random choices of the pieces' cuts, batches and sizes. @returns The largest difference.
double trial(const onnx_pieces& p, int turns, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const runtime::model_interface& m = p.whole()->interface();
  double most = 0;
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<formats::onnx_cut> chosen;
    for (const formats::onnx_cut& c : p.cuts()) {
      if (random() % 3 != 0) chosen.push_back(c);
    }
    const auto stages = p.load_stages(formats::cut(p.model(), chosen));
    REQUIRE(stages.size() == chosen.size() + 1);
    CHECK(runtime::onnx::interface_of(stages) == m);
    for (int run = 0; run < 4; ++run) {
      const auto rows = static_cast<std::uint32_t>(1 + random() % 9);
      const auto size = static_cast<std::uint32_t>(1 + random() % m.max_size);
      const dense_tensors in = draw(m, rows, size, random);
      const dense_tensors expected = run_stages({p.whole()}, in, rows, size);
      const double gap = difference(m.outputs, expected, run_stages(stages, in, rows, size));
      INFO("seed " << seed << ", turn " << turn << ", " << rows << " rows of " << size << ", "
                   << chosen.size() << " cuts: off by " << gap);
      CHECK(gap < 1e-5);
      most = std::max(most, gap);
    }
  }
  return most;
}

TEST_CASE("cut where no fusion is split, models of the tests answer bit by bit as they are whole") {
  const std::map<std::string, std::size_t> cuts{{"mlp", 1},       {"convolutions", 2},
                                                {"encoder", 4},   {"masked_encoder", 4},
                                                {"with_exit", 4}, {"without_batch", 0}};
  for (const formats::onnx_model& m : test::all_onnx_models()) {
    INFO(m.name);
    const onnx_pieces p = pieces_of(m, false);
    MESSAGE(m.name << ": " << p.places() << " places, " << p.cuts().size() << " cuts");
    for (const formats::onnx_cut& c : p.cuts()) {
      std::string t;
      for (const std::string& name : c.tensors) t += ' ' + name;
      MESSAGE(c.node << (c.splits_fusion ? " splits" : "") << t << ": " << p.bytes(c));
    }
    CHECK(trial(p, 8, 101) == 0);
  }
}

TEST_CASE("cut anywhere, models of the tests answer as they are whole, but for rounding") {
  for (const formats::onnx_model& m : test::all_onnx_models()) {
    INFO(m.name);
    const onnx_pieces p = pieces_of(m, true);
    MESSAGE(m.name << ": " << p.cuts().size() << " cuts, off by at most " << trial(p, 8, 102));
  }
}

}  // namespace
}  // namespace cohort::commands
