// SPDX-License-Identifier: Apache-2.0
// Answers of models that were cut, against those of the whole models.
#include <commands/onnx_pieces.hpp>

#include <doctest/doctest.h>

#include <fmt/format.h>

#include <support/onnx_models.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace cohort::commands::onnx_pieces_test {
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

/// How far answers of a model that was cut are from those of others, at most.
struct found {
  double same = 0;   ///< The whole model with what was found of its tensors declared.
  double whole = 0;  ///< The model as it is.
};

/// Random choices of the pieces' cuts, batches and sizes.
found trial(const onnx_pieces& p, int turns, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const runtime::model_interface& m = p.whole()->interface();
  const auto declared = p.load_stages({&p.model(), 1});
  found most;
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<formats::onnx_cut> chosen;
    for (const formats::onnx_cut& c : p.cuts()) {
      if (random() % 3 != 0) chosen.push_back(c);
    }
    const auto stages = p.load_stages(formats::cut(p.model(), chosen));
    REQUIRE(stages.size() == chosen.size() + 1);
    const runtime::model_interface together = runtime::onnx::interface_of(stages);
    CHECK(together.inputs == m.inputs);
    CHECK(together.outputs == m.outputs);
    CHECK(together.max_size == m.max_size);
    for (int run = 0; run < 4; ++run) {
      const auto rows = static_cast<std::uint32_t>(1 + random() % 9);
      const auto size = static_cast<std::uint32_t>(1 + random() % m.max_size);
      const dense_tensors in = draw(m, rows, size, random);
      const dense_tensors got = run_stages(stages, in, rows, size);
      const double same = difference(m.outputs, run_stages(declared, in, rows, size), got);
      const double whole = difference(m.outputs, run_stages({p.whole()}, in, rows, size), got);
      INFO("seed " << seed << ", turn " << turn << ", " << rows << " rows of " << size << ", "
                   << chosen.size() << " cuts: off by " << same << " and " << whole);
      CHECK(whole < 5e-6);
      most.same = std::max(most.same, same);
      most.whole = std::max(most.whole, whole);
    }
  }
  return most;
}

TEST_CASE("cut where no fusion is split, models of the tests answer bit by bit as they are whole") {
  // Where each shape is known: in the encoders ONNX Runtime cannot tell it from the file.
  const std::map<std::string, std::size_t> cuts{
      {"mlp", 1},        {"convolutions", 2}, {"encoder", 12},     {"masked_encoder", 8},
      {"two_by_two", 3}, {"with_exit", 4},    {"without_batch", 2}};
  for (const formats::onnx_model& m : test::all_onnx_models()) {
    INFO(m.name);
    const onnx_pieces p = pieces_of(m, false);
    std::string all;
    for (const formats::onnx_cut& c : p.cuts()) all += fmt::format(" {}", c.node);
    INFO(p.places() << " places, cut at" << all);
    CHECK(p.cuts().size() == cuts.at(m.name));
    const found f = trial(p, 8, 101);
    CHECK(f.same == 0);
    if (!p.whole()->interface().has_sizes()) CHECK(f.whole == 0);
    MESSAGE(m.name << ": off by " << f.same << " and " << f.whole);
  }
}

TEST_CASE("cut anywhere, models of the tests answer as they are whole, but for rounding") {
  for (const formats::onnx_model& m : test::all_onnx_models()) {
    INFO(m.name);
    const onnx_pieces p = pieces_of(m, true);
    const found f = trial(p, 8, 102);
    MESSAGE(m.name << ": " << p.cuts().size() << " cuts, off by " << f.same << " and " << f.whole);
  }
}

TEST_CASE("more pieces than wanted are joined evenly, and what crosses has a row a request") {
  const onnx_pieces p = pieces_of(test::encoder(), true, 5);
  REQUIRE(p.cuts().size() == 4);
  const auto& c = p.cuts();
  for (std::size_t k = 1; k < 4; ++k) CHECK(c[k - 1].node < c[k].node);
  const onnx_pieces all = pieces_of(test::encoder(), true);
  for (const formats::onnx_cut& cut : all.cuts()) {
    // Position embeddings are the same for all requests; lengths are no tensors of a row.
    for (const std::string& name : cut.tensors) {
      INFO(name);
      CHECK_FALSE(name.starts_with("Range"));
      CHECK_FALSE(name.starts_with("Shape"));
    }
  }
  CHECK(all.cuts().size() < all.places());
  // ids INT64 [length] and hidden FP32 [length, 32], each a multiple of 8 bytes.
  CHECK(all.bytes(formats::onnx_cut{.tensors = {"ids"}}) == 128 * 8);
}

}  // namespace
}  // namespace cohort::commands::onnx_pieces_test
