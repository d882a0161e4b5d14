// A base of guards and holders: what one of them ends, no copy of it ends again.
#pragma once

namespace switchyard::shim {

class NoCopy {
 public:
  NoCopy(const NoCopy&) = delete;
  NoCopy& operator=(const NoCopy&) = delete;

 protected:
  NoCopy() = default;
  ~NoCopy() = default;
};

}  // namespace switchyard::shim
