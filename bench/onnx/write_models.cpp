// SPDX-License-Identifier: Apache-2.0
// Writes the small ONNX models of the tests as a repository, DIR/NAME/1/model.onnx: for
// scripts/onnx-bars and scripts/chaos, and for whoever wants to try the server without a model of
// their own. Usage: onnx.models DIR [--poison]. With --poison also two that a request can harm:
// `looping` runs as long as its input says, `in_pairs` fails where its input has an odd length.
// What is there already is written anew.
#include <formats/onnx_graph.hpp>

#include <support/onnx_models.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  const bool with_poison = argc == 3 && std::string_view{argv[2]} == "--poison";
  if (argc != 2 && !with_poison) {
    std::fprintf(stderr, "usage: onnx.models DIR [--poison]\n");
    return 2;
  }
  try {
    std::vector<cohort::formats::onnx_model> all = cohort::test::all_onnx_models();
    if (with_poison) {
      all.push_back(cohort::test::looping());
      all.push_back(cohort::test::in_pairs());
    }
    for (const auto& m : all) {
      const fs::path folder = fs::path{argv[1]} / m.name / "1";
      fs::create_directories(folder);
      std::ofstream out{folder / "model.onnx", std::ios::binary};
      out.exceptions(std::ios::failbit | std::ios::badbit);
      const std::string bytes = cohort::formats::to_bytes(m);
      out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "onnx.models: %s\n", e.what());
    return 1;
  }
  return 0;
}
