#pragma once

// A machine with vector registers of 8 floats, which counts what it does.

struct Counts {
  long loads = 0, stores = 0, multiply_adds = 0;
  int registers = 0, most_registers = 0;  // that exist now; that ever existed at the same time
};
inline Counts counts;

class Vec {
 public:
  static constexpr int kWidth = 8;

  Vec() { begin(); }
  Vec(const Vec& other) {
    begin();
    for (int i = 0; i < kWidth; ++i) lanes_[i] = other.lanes_[i];
  }
  Vec& operator=(const Vec&) = default;
  ~Vec() { --counts.registers; }

  /// from[0] to from[7].
  static Vec load(const float* from) { return {from, 1}; }
  /// Eight times *from.
  static Vec broadcast(const float* from) { return {from, 0}; }
  void store(float* to) const {
    ++counts.stores;
    for (int i = 0; i < kWidth; ++i) to[i] = lanes_[i];
  }
  /// *this += a * b, in each lane.
  void multiply_add(const Vec& a, const Vec& b) {
    ++counts.multiply_adds;
    for (int i = 0; i < kWidth; ++i) lanes_[i] += a.lanes_[i] * b.lanes_[i];
  }

 private:
  Vec(const float* from, int step) {
    begin();
    ++counts.loads;
    for (int i = 0; i < kWidth; ++i) lanes_[i] = from[i * step];
  }
  void begin() {
    if (++counts.registers > counts.most_registers) counts.most_registers = counts.registers;
  }

  float lanes_[kWidth] = {};
};
