// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model run by ONNX Runtime's own functions and nothing else of ours: what answers are compared
/// with.
#pragma once

#include <doctest/doctest.h>
#include <cohort/runtime/onnx/library.hpp>
#include <runtime/onnx/api.hpp>
#include <support/onnx_models.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cohort::runtime::onnx {

/// All tensors are dense, memory of outputs is the runtime's. One thread.
class plain_session {
 public:
  struct tensor {
    std::int32_t element;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> data;
  };

  plain_session(std::shared_ptr<const library> l, const formats::onnx_model& m)
      : library_{std::move(l)}, api_{&library_->api()} {
    for (const auto& v : m.inputs) input_names_.push_back(v.name);
    for (const auto& v : m.outputs) output_names_.push_back(v.name);
    const std::string bytes = formats::to_bytes(m);
    detail::ort_session_options* options = nullptr;
    check(api_->create_session_options(&options));
    check(api_->set_intra_op_threads(options, 1));
    check(api_->create_session_from_bytes(&library_->env(), bytes.data(), bytes.size(), options,
                                          &session_));
    api_->release_session_options(options);
    check(api_->create_cpu_memory_info(detail::device_allocator, detail::default_memory, &memory_));
  }
  ~plain_session() {
    api_->release_session(session_);
    api_->release_memory_info(memory_);
  }
  plain_session(const plain_session&) = delete;
  plain_session& operator=(const plain_session&) = delete;

  /// @param output_bytes Of each output.
  std::vector<std::vector<std::byte>> run(std::vector<tensor>& inputs,
                                          const std::vector<std::size_t>& output_bytes) const {
    std::vector<detail::ort_value*> in(inputs.size());
    std::vector<detail::ort_value*> out(output_names_.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      tensor& t = inputs[i];
      check(api_->create_tensor_with_data(memory_, t.data.data(), t.data.size(), t.shape.data(),
                                          t.shape.size(), t.element, &in[i]));
    }
    const auto pointers = [](const std::vector<std::string>& names) {
      std::vector<const char*> p;
      for (const std::string& n : names) p.push_back(n.c_str());
      return p;
    };
    check(api_->run(session_, nullptr, pointers(input_names_).data(), in.data(), in.size(),
                    pointers(output_names_).data(), out.size(), out.data()));
    std::vector<std::vector<std::byte>> answers;
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::byte* data = nullptr;
      // Place 51 of the table, which the library has no use for: the data of a tensor.
      const auto data_of = reinterpret_cast<detail::ort_status* (*)(detail::ort_value*, void**)>(
          reinterpret_cast<void (*const*)()>(api_)[51]);
      check(data_of(out[i], reinterpret_cast<void**>(&data)));
      answers.emplace_back(data, data + output_bytes[i]);
      api_->release_value(out[i]);
    }
    for (detail::ort_value* v : in) api_->release_value(v);
    return answers;
  }

 private:
  void check(detail::ort_status* status) const {
    if (status == nullptr) return;
    const std::string text = api_->error_message(status);
    api_->release_status(status);
    FAIL(text);
  }

  std::shared_ptr<const library> library_;
  const detail::ort_api* api_;
  std::vector<std::string> input_names_;
  std::vector<std::string> output_names_;
  detail::ort_session* session_ = nullptr;
  detail::ort_memory_info* memory_ = nullptr;
};

}  // namespace cohort::runtime::onnx
