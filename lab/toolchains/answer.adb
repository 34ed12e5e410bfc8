--  The stack of answer.c, in Ada.
with Ada.Text_IO; use Ada.Text_IO;

procedure Answer is
   Sink : Long_Integer := 0;
   pragma Volatile (Sink);
   N : Long_Integer := 0;

   procedure Leaf_Spin;
   pragma No_Inline (Leaf_Spin);
   procedure Leaf_Spin is
   begin
      for I in 1 .. 5_000_000 loop
         Sink := Sink + 1;
      end loop;
   end Leaf_Spin;

   procedure Leaf_Wait;
   pragma No_Inline (Leaf_Wait);
   procedure Leaf_Wait is
   begin
      delay 0.02;
      Sink := Sink + 1;
   end Leaf_Wait;

   procedure Middle_Step;
   pragma Inline_Always (Middle_Step);
   procedure Middle_Step is
   begin
      if N mod 2 = 0 then
         Leaf_Spin;
      else
         Leaf_Wait;
      end if;
      Sink := Sink + 1;
   end Middle_Step;

   procedure Outer_Step;
   pragma No_Inline (Outer_Step);
   procedure Outer_Step is
   begin
      Middle_Step;
      Sink := Sink + 1;
   end Outer_Step;
begin
   Put_Line ("ready");
   Flush;
   loop
      Outer_Step;
      N := N + 1;
   end loop;
end Answer;
