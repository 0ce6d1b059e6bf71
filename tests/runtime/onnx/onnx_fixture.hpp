// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sessions of models that tests make, and their answers on dense tensors.
#pragma once

#include <cohort/runtime/host.hpp>
#include <cohort/runtime/onnx/session.hpp>
#include <support/onnx_models.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::runtime::onnx {

inline std::shared_ptr<const library> runtime() {
  static const std::shared_ptr<const library> one = library::open();
  return one;
}

inline std::shared_ptr<const session> load(const formats::onnx_model& m,
                                           session_options options = {}) {
  if (options.name.empty()) options.name = m.name;
  const std::string bytes = formats::to_bytes(m);
  return std::make_shared<session>(runtime(), std::as_bytes(std::span{bytes}), options);
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Runs dense tensors. @returns Each output's.
inline std::vector<std::vector<std::byte>> answers(
    const session& s, const std::vector<std::vector<std::byte>>& inputs, std::uint32_t rows,
    std::uint32_t size = 1) {
  std::vector<const std::byte*> in;
  for (const auto& tensor : inputs) in.push_back(tensor.data());
  std::vector<std::vector<std::byte>> outputs;
  for (const tensor_info& t : s.interface().outputs) outputs.emplace_back(t.bytes(size) * rows);
  std::vector<std::byte*> out;
  for (auto& tensor : outputs) out.push_back(tensor.data());
  s.run(in, out, rows, size);
  return outputs;
}

/// The end of a stream's work.
struct stream_end : completion {
  stream_end() {
    invoke = [](completion& c, bool failed) noexcept {
      auto& self = static_cast<stream_end&>(c);
      if (failed && c.error != nullptr) self.text = c.error;
      self.state.store(failed ? 2 : 1);
      self.state.notify_one();
    };
  }
  /// Waits for it. @returns "failed: " and why; empty if it succeeded.
  std::string failure() {
    state.wait(0);
    return state == 2 ? "failed: " + text : "";
  }
  std::atomic<int> state{0};
  std::string text;
};

/// Waits for a stream's work. @returns As `stream_end::failure`.
inline std::string failure_of(host_executor& e, host_executor::stream& stream) {
  stream_end done;
  e.notify(stream, done);
  return done.failure();
}

}  // namespace cohort::runtime::onnx
