// SPDX-License-Identifier: Apache-2.0
// Writes the small ONNX models of the tests as a repository, DIR/NAME/1/model.onnx: for
// scripts/onnx-bars, and for whoever wants to try the server without a model of their own.
// Usage: onnx.models DIR. What is there already is written anew.
#include <formats/onnx_graph.hpp>

#include <support/onnx_models.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  if (argc != 2) {
    std::fprintf(stderr, "usage: onnx.models DIR\n");
    return 2;
  }
  try {
    for (const auto& m : cohort::test::all_onnx_models()) {
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
