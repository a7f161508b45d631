! crdebug_app.h for Fortran: the same calls, and the same meaning. See docs/app.md.
module crdebug_app
  use, intrinsic :: iso_c_binding, only: c_char, c_f_pointer, c_funloc, c_funptr, c_int, c_null_char, &
    c_null_ptr, c_ptr, c_size_t
  implicit none
  private
  public :: crdebug_checkpoint, crdebug_restart, crdebug_quiet_start, crdebug_quiet_end
  public :: crdebug_register, crdebug_refuse, crdebug_reason, crdebug_callback

  integer, parameter, public :: CRDEBUG_DONE = 0, CRDEBUG_NOT_HERE = -1, CRDEBUG_REFUSED = -2, &
    CRDEBUG_FAILED = -3
  integer, parameter, public :: CRDEBUG_BEFORE_CHECKPOINT = 0, CRDEBUG_AFTER_CONTINUE = 1, &
    CRDEBUG_AFTER_RESTART = 2

  abstract interface
    integer(c_int) function crdebug_callback(moment, data) bind(C)
      import :: c_int, c_ptr
      integer(c_int), value :: moment
      type(c_ptr), value :: data
    end function
  end interface

  interface
    integer(c_int) function crdebug_quiet_start() bind(C)
      import :: c_int
    end function

    integer(c_int) function crdebug_quiet_end() bind(C)
      import :: c_int
    end function

    integer(c_int) function crdebug_restart(number) bind(C)
      import :: c_int
      integer(c_int), value :: number
    end function

    integer(c_int) function c_checkpoint(note, number) bind(C, name="crdebug_checkpoint")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: note(*)
      integer(c_int), intent(inout) :: number
    end function

    integer(c_int) function c_register(callback, data) bind(C, name="crdebug_register")
      import :: c_funptr, c_int, c_ptr
      type(c_funptr), value :: callback
      type(c_ptr), value :: data
    end function

    integer(c_int) function c_refuse(reason) bind(C, name="crdebug_refuse")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: reason(*)
    end function

    type(c_ptr) function c_reason() bind(C, name="crdebug_reason")
      import :: c_ptr
    end function

    integer(c_size_t) function c_length(text) bind(C, name="strlen")
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

contains

  integer function crdebug_checkpoint(note, number) result(status)
    character(len=*), intent(in), optional :: note
    integer, intent(out), optional :: number
    integer(c_int) :: taken
    taken = 0
    if (present(note)) then
      status = c_checkpoint(trim(note)//c_null_char, taken)
    else
      status = c_checkpoint(c_null_char, taken)
    end if
    if (present(number)) number = taken
  end function

  integer function crdebug_register(callback, data) result(status)
    procedure(crdebug_callback) :: callback
    type(c_ptr), intent(in), optional :: data
    if (present(data)) then
      status = c_register(c_funloc(callback), data)
    else
      status = c_register(c_funloc(callback), c_null_ptr)
    end if
  end function

  integer(c_int) function crdebug_refuse(reason) result(status)
    character(len=*), intent(in) :: reason
    status = c_refuse(trim(reason)//c_null_char)
  end function

  function crdebug_reason() result(reason)
    character(len=:), allocatable :: reason
    character(kind=c_char), pointer :: text(:)
    type(c_ptr) :: where
    integer :: i, length
    where = c_reason()
    length = int(c_length(where))
    allocate (character(len=length) :: reason)
    call c_f_pointer(where, text, [length])
    do i = 1, length
      reason(i:i) = text(i)
    end do
  end function
end module
