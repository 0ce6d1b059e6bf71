// SPDX-License-Identifier: Apache-2.0
// Any body is parsed to a request of the right size, or refused with a message of one line. There
// is a region of shared memory, "r".
#include <cohort/serve/infer_request.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <serve/shared_regions.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace {

void enter_region(cohort::serve::shared_regions& all) {
  const std::string key = "/cohort_fuzz_" + std::to_string(getpid());
  const int segment = shm_open(key.c_str(), O_CREAT | O_RDWR, 0600);
  if (segment < 0 || ftruncate(segment, 64) != 0) std::abort();
  if (all.enter("r", R"({"key":")" + key + R"(","byte_size":64})")) std::abort();
  close(segment);
  shm_unlink(key.c_str());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort;
  static const serve::model_meta model{"m",
                                       "test",
                                       {{"x", runtime::data_type::f32, {2}}},
                                       {{"y", runtime::data_type::f32, {2}}},
                                       duration{1}};
  static serve::infer_parser parser{4};
  static serve::shared_regions regions;
  static const bool entered = (enter_region(regions), true);
  static_cast<void>(entered);
  const serve::shared_access shared{.regions = &regions, .most = 48};
  static const serve::model_meta open{.name = "o",
                                      .platform = "test",
                                      .inputs = {{"x", runtime::data_type::f32, {-1, 2, -1}}},
                                      .outputs = {{"y", runtime::data_type::f32, {-1}}},
                                      .batches = false,
                                      .is_open = true,
                                      .runs_alone = true};
  const std::string_view body{reinterpret_cast<const char*>(data), size};
  const auto shaped = parser.parse(body, open, {}, shared);
  if (const auto* request = std::get_if<serve::infer_request>(&shaped)) {
    std::size_t bytes = 4;
    for (const std::int64_t d : request->shapes.at(0)) bytes *= static_cast<std::size_t>(d);
    if (request->inputs[0].size() != bytes || request->shapes[0][1] != 2) std::abort();
    const std::vector<runtime::shaped_tensor> y{
        {{2, 1}, std::as_bytes(std::span{data, size}).first(size / 8 * 8), {}}};
    serve::infer_writer w{open, *request, y};
    static_cast<void>(serve::write_infer_response(w));
  }
  static const serve::model_meta texts{.name = "t",
                                       .platform = "test",
                                       .inputs = {{"x", runtime::data_type::bytes, {-1}}},
                                       .outputs = {{"y", runtime::data_type::bytes, {-1}}},
                                       .batches = false,
                                       .is_open = true,
                                       .runs_alone = true};
  const auto strings = parser.parse(body, texts, {}, shared);
  if (const auto* request = std::get_if<serve::infer_request>(&strings)) {
    std::span<const std::byte> rest = request->inputs[0];
    for (std::int64_t i = 0; i < request->shapes.at(0)[0]; ++i) {
      if (!runtime::take_string(rest)) std::abort();
    }
    if (!rest.empty()) std::abort();
    const std::vector<runtime::shaped_tensor> y{{request->shapes[0], request->inputs[0], {}}};
    serve::infer_writer w{texts, *request, y};
    static_cast<void>(serve::write_infer_response(w));
  }
  const auto r = parser.parse(body, model, {}, shared);
  if (const auto* request = std::get_if<serve::infer_request>(&r)) {
    if (request->rows < 1 || request->rows > 4 || request->inputs[0].size() != request->rows * 8) {
      std::abort();
    }
  } else if (const auto& e = std::get<serve::protocol_error>(r);
             e.status != 400 || e.message.empty() || e.message.find('\n') != std::string::npos) {
    std::abort();
  }
  return 0;
}
